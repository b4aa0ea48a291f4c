"""Run a user's command with a mistake, and write all of them as a page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from distributed_input.runner.starter_project import starter_files
from testing.mistakes.cases import Mistake

_SECONDS = 120
_LINES = 10
_WIDTH = 400
_HEAD = """\
# Mistakes

What `distributed-input` prints if something is wrong. Each command ran in a project that
`distributed-input init photos` wrote, with one mistake. Lines of a traceback, and lines that only
say that processes start and end, are left out.

This page is generated: `make mistakes` runs all commands and writes what they print.
"""
_NOISE = re.compile(
    r"^\s*(File \"(?!/photos)|Traceback|\^|~|During handling|The above exception)|^$|^ {4,}\S"
    r"|^\s*\[\[|^  (photos|process|dispatcher|worker-|sidecar-|trainer-)|^Epoch |/step"
    r"|are ready after|the logs are in|_interrupted_warning|\(defined at|^Stack trace"
    r"|site-packages|self.data_adapter|Detected at node|^<stack traces|^\t|oneDNN|absl::"
    r"|cpu_feature_guard|rebuild TensorFlow|computation_placer|cuda|OUT_OF_RANGE"
)
_CHANGING = (
    (re.compile(r"\b\d+\.\d+ s\b"), "… s"),
    (re.compile(r"\bport \d{4,5}\b"), "port …"),
    (re.compile(r"\b(pid|process) \d+\b"), r"\1 …"),
    (re.compile(r"0x[0-9a-f]+"), "0x…"),
    (re.compile(r"\bworker [\w-]+: the "), "worker …: the "),
    (re.compile(r"\bsplit \d+ are"), "split … are"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "…"),
)


@dataclass(frozen=True)
class Output:
    """What a command printed."""

    mistake: Mistake
    status: int
    text: str
    problem: str
    """Why the output does not help. Empty: it does."""


def output(mistake: Mistake) -> Output:
    """Run a command in a new project with a mistake."""
    with tempfile.TemporaryDirectory(prefix="di-") as folder:
        home = Path(folder)
        project = home / "photos"
        project.mkdir()
        files = {**starter_files("photos", 2, 64), **mistake.files}
        for name, (before, after) in mistake.edits.items():
            assert before in files[name], (mistake.what, name, before)
            files[name] = files[name].replace(before, after)
        for name, text in files.items():
            (project / name).write_text(text)
        done = subprocess.run(
            ["/bin/bash", "-c", mistake.command],
            cwd=project,
            env=_environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
        text = _stable(done.stdout, project)
    return Output(mistake, done.returncode, text, _problem(mistake, done.returncode, text))


def _environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    tools = str(Path(sys.executable).parent)
    (home / "tmp").mkdir()
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "XDG_RUNTIME_DIR": "",
        "PATH": tools,  # so kubectl is not found, also where it is installed
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }


def _stable(text: str, project: Path) -> str:
    """Return the lines that matter, without what differs from run to run."""
    text = text.replace(str(project), "/photos").replace(str(project.parent), "/home")
    lines = [line.rstrip() for line in text.splitlines() if not _NOISE.search(line)]
    for pattern, replacement in _CHANGING:
        lines = [pattern.sub(replacement, line) for line in lines]
    unique = list(dict.fromkeys(line[:_WIDTH] for line in lines))
    return "\n".join(unique[-_LINES:])


def _problem(mistake: Mistake, status: int, text: str) -> str:
    if status == 0:
        return "exit status 0"
    return "" if mistake.remedy in text else f"no {mistake.remedy!r}"


def page(found: Sequence[Output]) -> str:
    """Return the page with all mistakes."""
    parts = [_HEAD]
    for group, outputs in groupby(found, key=lambda one: one.mistake.group):
        parts.append(f"\n## {group}\n")
        parts += map(section, outputs)
    return "".join(parts)


def section(one: Output) -> str:
    """Return the part of the page about one mistake."""
    return f"\n**{one.mistake.what}**\n\n```text\n$ {one.mistake.command}\n{one.text}\n```\n"
