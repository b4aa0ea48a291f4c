"""Run a function in a fork of this process, as PyTorch and multiprocessing do."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable

_SECONDS = 20
"""Time after which a fork that hangs is ended."""


class Fork:
    """A fork of this process that runs `body`, and then ends without any cleanup."""

    def __init__(self, body: Callable[[], str]) -> None:
        self._pipe, write = os.pipe()
        with warnings.catch_warnings():
            # Later versions of Python warn if the process has threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            self._run(body, write)
        os.close(write)

    @staticmethod
    def _run(body: Callable[[], str], write: int) -> None:
        signal.alarm(_SECONDS)  # ends a fork that hangs
        try:
            text = body()
        except BaseException as error:  # noqa: BLE001
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)

    def result(self) -> str:
        """Wait for the end and return the text of `body`, or its error as `Class: message`."""
        with os.fdopen(self._pipe, "rb") as pipe:
            text = pipe.read().decode()
        _, status = os.waitpid(self._pid, 0)
        assert status == 0, f"the fork ended with {status}: {text}"
        return text
