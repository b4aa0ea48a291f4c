"""`distributed_input.local`: the processes of an input, started from Python.

It starts `distributed-input run` as a child, in a session of its own: Ctrl-C, and Jupyter when it
interrupts a cell, send SIGINT to a whole process group. The trainer of that run is
`trainer_proxy`, which ends with this process, however this process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from distributed_input.api import environment
from distributed_input.api.errors import ConfigError, TerminalError, short
from distributed_input.runner import trainer_proxy
from distributed_input.runner.folders import check_encoding
from distributed_input.runner.processes import children
from distributed_input.runner.processes.supervised_process import (
    EXIT_PROCESS_FAILED,
    describe_exit,
)
from distributed_input.runtime.args import EXIT_CONFIG

_PREFIX = "distributed-input: "
_END_SECONDS = 20.0
_LAST_LINES = 25
_PROGRESS_SECONDS = 5.0
_VARIABLES = (
    environment.DIR_ENV,
    environment.NAMES_ENV,
    environment.CONSUMER_INDEX_ENV,
    environment.CONSUMER_COUNT_ENV,
    environment.TF_DATA_SERVICE_ENV,
)
# Without the working folder at the start of sys.path, where a file could shadow a module.
_RUN = "import sys; del sys.path[0]; from distributed_input.cli import main; sys.exit(main())"

_open_run: weakref.ref[LocalRun] | None = None


@short
def local(
    resource: str | os.PathLike[str] | Mapping[str, Any],
    *,
    workers: int | Literal["local"] | None = None,
    timeout: float = 120.0,
) -> LocalRun:
    """Start the processes of an input on this machine, for notebooks and tests.

        with distributed_input.local("input.yaml", workers=4):
            with distributed_input.connect("digits") as digits:
                for batch in digits.numpy():
                    ...

    They are the processes of `distributed-input run`, and this process is their only trainer.
    `connect()` finds them while the run is open. They end with this process, also if it is killed.
    A second call closes the first run, so a cell of a notebook can run again.

    Args:
        resource: path of a YAML file with one input or several, or one input as a dict. In a dict,
            a relative `source.path` starts at the working folder.
        workers: number of workers of each input, or "local": see `distributed-input run --help`.
            Default: the number in the resource.
        timeout: seconds for all processes to be ready.

    Returns:
        The open run. Use it as a context manager, or call `close`.

    Raises:
        ConfigError: the resource or an argument is invalid. No process was started.
        TerminalError: a process could not start. The message has the end of its log.
    """
    if workers is not None and workers != "local" and (type(workers) is not int or workers < 1):
        raise ConfigError(f"workers={workers!r}: must be a number of 1 or more, or 'local'")
    global _open_run  # noqa: PLW0603 - like the environment variables, one for the process
    previous = _open_run() if _open_run is not None else None
    if previous is not None:
        with contextlib.suppress(TerminalError):
            previous.close()
    with _file_of(resource) as file:
        run = LocalRun(file, workers, timeout)
    _open_run = weakref.ref(run)
    return run


class LocalRun:
    """The running processes of one resource file. `local` creates it."""

    def __init__(self, file: Path, workers: int | str | None, timeout: float) -> None:
        self._inputs, self._workers = "", workers
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_stop`
        self._process = subprocess.Popen(
            _command(file, workers, timeout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            start_new_session=True,
        )
        # In a fork of this process, `terminate` has no effect. After a kill of the run, the process
        # wrapper ends the others.
        self._stop = weakref.finalize(
            self, children.end, self._process, _END_SECONDS, self._messages
        )
        try:
            variables = self._wait_until_ready()
        except BaseException:  # KeyboardInterrupt too
            self._stop()
            raise
        self._inputs = variables.get(environment.NAMES_ENV, "").replace(",", ", ")
        original = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        self._restore = weakref.finalize(self, _set_variables, original)
        _set_variables(variables)

    def __repr__(self) -> str:
        workers = "as in the resource" if self._workers is None else self._workers
        if not self._stop.alive:
            state = "closed"
        else:
            state = f"running, pid {self.pid}" if self.is_running else "ended by itself"
        return f"<LocalRun of {self._inputs}; workers: {workers}; {state}>"

    @property
    def pid(self) -> int:
        """The process id of `distributed-input run`, the parent of all processes of the run."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the processes run: until `close`, or until one crashes repeatedly."""
        return self._stop.alive and self._process.poll() is None

    def close(self) -> None:
        """End all processes of the run and remove their files. A second call has no effect.

        Raises:
            TerminalError: the run had ended before, because a process had crashed repeatedly.
        """
        failure = self._failure() if self._stop.alive and not self.is_running else None
        self._restore()
        self._stop()
        if failure is not None:
            raise failure

    def __enter__(self) -> LocalRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except TerminalError:
            # It is the cause of an exception in the block, but not of KeyboardInterrupt.
            if error is None or isinstance(error, Exception):
                raise

    def _wait_until_ready(self) -> dict[str, str]:
        """Return the variables of a trainer, which `trainer_proxy` prints when it starts."""
        assert self._process.stdout is not None
        while not select.select([self._process.stdout], [], [], _PROGRESS_SECONDS)[0]:
            for progress in self._lines()[-1:]:  # what it waits for
                print(progress, file=sys.stderr)
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise self._failure()
        found = json.loads(line)
        return {name: found[name] for name in _VARIABLES if name in found}

    def _lines(self) -> list[str]:
        """Return what the run has printed. It writes with a position of its own."""
        file = self._messages.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace").splitlines()

    def _failure(self) -> TerminalError:
        """Return the error for a run that has ended by itself."""
        status = self._process.returncode
        lines = self._lines()[-_LAST_LINES:]
        if status not in (EXIT_CONFIG, EXIT_PROCESS_FAILED):  # it did not print the cause
            lines.append(f"the run {describe_exit(status)}")
        text = "\n".join(line.removeprefix(_PREFIX) for line in lines)
        return ConfigError(text) if status == EXIT_CONFIG else TerminalError(text)


def _command(file: Path, workers: int | str | None, timeout: float) -> list[str]:
    return [
        *(sys.executable, "-c", _RUN, "run", str(file), "--start-timeout", str(timeout)),
        *(() if workers is None else ("--workers", str(workers))),
        *("--", sys.executable, "-I", "-S", trainer_proxy.__file__, str(os.getpid())),
    ]


@contextlib.contextmanager
def _file_of(resource: str | os.PathLike[str] | Mapping[str, Any]) -> Iterator[Path]:
    """Yield the path of a valid resource file."""
    if not isinstance(resource, Mapping):
        yield Path(resource)
        return
    with tempfile.TemporaryDirectory(prefix="distributed-input-") as folder:
        file = Path(folder) / "input.yaml"
        try:
            copied = json.loads(json.dumps(resource))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the resource is not JSON: {error}") from error
        _make_path_absolute(copied)
        file.write_text(json.dumps(copied))
        try:
            yield file
        except ConfigError as error:
            raise ConfigError(str(error).replace(f"{file}:1: ", "")) from None


def _make_path_absolute(resource: Any) -> None:
    """Let a relative `source.path` start at the working folder."""
    section = resource
    for name in ("spec", "dataset", "entryPoint", "source"):
        section = section.get(name) if isinstance(section, dict) else None
    if isinstance(section, dict) and isinstance(section.get("path"), str):
        section["path"] = os.path.abspath(section["path"])
        check_encoding(section["path"])


def _set_variables(values: Mapping[str, str]) -> None:
    """Set the variables of a trainer in this process, and remove those that have no value."""
    for name in _VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(values)
