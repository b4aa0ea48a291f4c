"""The pods of one input and of its trainer, as the operators of two commits create them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class InputPods:
    """What an operator creates for one input and for a trainer's pod. All values are JSON."""

    dispatcher: Any
    """The dispatcher's Deployment."""
    worker: Any
    """The workers' Deployment."""
    trainer: Any
    """The trainer's pod after injection."""
    config: Any
    """The data of the sidecars' ConfigMap."""


def create_pods(
    function: str, rows: int, ports: Mapping[str, int], code: Path | None = None
) -> InputPods:
    """Run the operator's pure functions in a process of a commit.

    Args:
        function: the dataset's entry point, with the argument `rows`.
        rows: number of rows.
        ports: ports of "dispatcher" and "worker", and "<part>-metrics", also of "trainer".
        code: folder with the code of the commit. None: this checkout.
    """
    request = {"function": function, "args": {"rows": rows}, "ports": dict(ports)}
    root = code or _ROOT
    done = subprocess.run(
        (sys.executable, "-m", "testing.releases.render"),
        env={**os.environ, **image_env(root, root)},
        cwd=root,
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return InputPods(*json.loads(done.stdout))


def image_env(code: Path | None, *more: Path) -> dict[str, str]:
    """Return the environment of a process or an image.

    Args:
        code: folder with the code of a commit. None: this checkout.
        more: further folders of Python modules.
    """
    own = [code / "sidecar" / "src", code / "operator" / "src"] if code else []
    return {"PYTHONPATH": ":".join(map(str, (*own, *more)))}
