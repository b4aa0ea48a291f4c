"""Sources of tokens, and the rotation of a token without rejected calls.

After a token file changes, processes read the new token at different times (a kubelet needs a
minute or two). Callers therefore present both tokens for a while, and servers accept the previous
one for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import logs

PREVIOUS_ACCEPTED_SECONDS = 600.0
PREVIOUS_PRESENTED_SECONDS = 300.0
_CHECK_SECONDS = 1.0
_log = logs.get("runtime.files.tokens")


def validated(text: str, what: str) -> str:
    """Return the token in `text` without surrounding space.

    Raises:
        ConfigError: the token is invalid; names `what`, never the token.
    """
    token = text.strip()
    if not token:
        raise ConfigError(f"{what}: contains no token; write a random string to it")
    if not all("!" <= character <= "~" for character in token):
        raise ConfigError(f"{what}: a token must be one word of printable ASCII characters")
    logs.redact(token)
    return token


class FixedToken:
    """A token that does not change. `accepted` and `presented` are those of `FileToken`."""

    def __init__(self, token: str) -> None:
        self._tokens = (token,)

    def accepted(self) -> tuple[str, ...]:
        """Return the token."""
        return self._tokens

    presented = accepted


class FileToken:
    """A token in a file, which is read again at most once per second.

    If the file disappears or becomes invalid, the last valid token stays in use and a warning is
    logged. A running job must not fail because of a half-written Secret.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._previous: str | None = None
        self._changed = self._checked = clock()
        self._seen = ""
        try:
            self._seen = self._read()
        except OSError as error:
            raise ConfigError(f"token file {path}: {error.strerror}") from error
        self._current = validated(self._seen, f"token file {path}")

    def accepted(self) -> tuple[str, ...]:
        """Return the current token, and the previous one for PREVIOUS_ACCEPTED_SECONDS."""
        return self._tokens(PREVIOUS_ACCEPTED_SECONDS)

    def presented(self) -> tuple[str, ...]:
        """Return the current token, and the previous one for PREVIOUS_PRESENTED_SECONDS."""
        return self._tokens(PREVIOUS_PRESENTED_SECONDS)

    def _tokens(self, overlap: float) -> tuple[str, ...]:
        with self._lock:
            now = self._clock()
            if now - self._checked >= _CHECK_SECONDS:
                self._checked = now
                self._refresh(now)
            if self._previous is not None and now - self._changed < overlap:
                return self._current, self._previous
            return (self._current,)

    def _read(self) -> str:
        # Read the content, not time stamps, because a Secret's file is a link that is replaced.
        return self._path.read_text(encoding="utf-8", errors="replace")

    def _refresh(self, now: float) -> None:
        try:
            text = self._read()
            if text == self._seen:
                return
            self._seen = text
            token = validated(text, f"token file {self._path}")
        except (OSError, ConfigError) as error:
            _log.warning("token file invalid: the last valid token stays in use", error=str(error))
            return
        if token != self._current:
            self._previous, self._current, self._changed = self._current, token, now
            _log.info("token rotated", file=str(self._path))


TokenSource = FixedToken | FileToken
