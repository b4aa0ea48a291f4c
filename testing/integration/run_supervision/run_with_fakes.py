"""`distributed-input run` with fake parts."""

import sys
from pathlib import Path
from types import SimpleNamespace

from distributed_input.runner.commands import run as command

_FAKE_PROCESS = str(Path(__file__).with_name("fake_process.py"))


def _program(kind: str) -> tuple[str, ...]:
    return (sys.executable, "-S", _FAKE_PROCESS, kind)


if __name__ == "__main__":
    programs = {kind: _program(kind) for kind in ("dispatcher", "worker", "sidecar")}
    options = command.run.make_context("run", sys.argv[1:]).params
    sys.exit(command.execute(SimpleNamespace(**options), programs))
