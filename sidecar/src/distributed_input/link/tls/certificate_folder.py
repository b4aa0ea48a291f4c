"""The folder with a process's certificate, which another process replaces before it expires."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.api.identity import AUTHORITIES_FILE, CHAIN_FILE, KEY_FILE
from distributed_input.link.tls.certificate import Certificate, checked
from distributed_input.runtime import logs

_CHECK_SECONDS = 1.0
_READS = 3
_log = logs.get("runtime.tls")


class CertificateFolder:
    """The newest usable certificate in a folder, which is read at most once per second.

    If the files disappear or do not fit together, the last usable certificate stays in use and a
    warning is logged. Thread-safe.

    Raises:
        UnavailableError: the folder has no usable certificate. It may get one.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._checked = clock()
        self._seen: tuple[bytes, ...] = ()
        self._problem = ""
        try:
            self._seen = self._read()
            self._current = checked(*self._seen)
        except (OSError, ConfigError) as error:
            raise UnavailableError(
                f"the certificate in {path} cannot be used: {_cause(error)}. Check that the "
                "operator runs, which renews it, and that the clocks of the machines agree"
            ) from error

    def current(self) -> Certificate:
        """Return the certificate for new connections."""
        with self._lock:
            now = self._clock()
            if now - self._checked >= _CHECK_SECONDS:
                self._checked = now
                self._refresh()
            return self._current

    def _refresh(self) -> None:
        try:
            found = self._read()
            if found == self._seen:
                return
            self._current, self._seen = checked(*found), found
        except (OSError, ConfigError) as error:
            # It may become usable: files may be replaced one by one, and clocks may differ.
            if self._problem != (cause := _cause(error)):
                self._problem = cause
                _log.warning(
                    "certificate not usable: the one before stays in use",
                    folder=str(self._path),
                    cause=cause,
                )
            return
        self._problem = ""
        _log.info(
            "certificate renewed", folder=str(self._path), expires=round(self._current.expires)
        )

    def _read(self) -> tuple[bytes, ...]:
        """Return certificate, key and authorities, all from one version of a mounted volume."""
        for left in reversed(range(_READS)):
            # Kubernetes replaces the link `..data` and removes the folder that it pointed to. The
            # link is in this folder if a volume is mounted here, or else above it: NAME is then a
            # link to ..data/NAME.
            data = self._path / "..data"
            folder = (data if data.is_dir() else self._path).resolve()
            try:
                return tuple(
                    (folder / name).read_bytes()
                    for name in (CHAIN_FILE, KEY_FILE, AUTHORITIES_FILE)
                )
            except FileNotFoundError:
                if not left:
                    raise
        raise AssertionError("unreachable")


def _cause(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
