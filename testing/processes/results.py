"""Results of a program that runs as a fork: JSON in its ready file.

`Forks.start` calls `main(argv)` with `--ready-file PATH` as the last two arguments.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def arguments(argv: Sequence[str]) -> tuple[list[str], Path]:
    """Return the program's own arguments and the path of its ready file."""
    *own, flag, path = argv
    assert flag == "--ready-file", argv
    return own, Path(path)


def write(path: Path, results: Any) -> None:
    """Write the ready file in one step, so that a reader never sees a part of it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results))
    part.rename(path)
