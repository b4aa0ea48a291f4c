"""Runs the Python blocks of a page in one process, one after the other: `guide docs/pytorch.md`."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

from testing.documentation.blocks import ROOT, blocks

MOST_LINES = 10

if __name__ == "__main__":
    page = sys.argv[1]
    names: dict[str, Any] = {"__name__": "guide"}
    found = [b for b in blocks(page, (ROOT / page).read_text()) if b.language == "python"]
    assert found
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for block in found:
            assert len(block.text.splitlines()) <= MOST_LINES, block.place
            print(block.place, flush=True)
            lines = "\n" * block.line + block.text  # for the lines of a traceback
            exec(compile(lines, os.path.join(ROOT, page), "exec"), names)
