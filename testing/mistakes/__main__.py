"""Make each mistake, and write what is printed to docs/mistakes.md.

Run `python -m testing.mistakes [--only N]`. With --only, the page is not written. The exit status
is 1 if an output does not name the remedy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testing.mistakes.cases import MISTAKES
from testing.mistakes.outputs import Output, output, page

PAGE = Path(__file__).parents[2] / "docs" / "mistakes.md"


def main() -> int:
    """Print each output. Return 1 if one does not name the remedy."""
    flags = argparse.ArgumentParser(prog="python -m testing.mistakes")
    flags.add_argument("--only", type=int, help="number of one mistake, from 1")
    only = flags.parse_args().only
    found: list[Output] = []
    for number, mistake in enumerate(MISTAKES, 1):
        if only in (None, number):
            one = output(mistake)
            found.append(one)
            print(f"{number} {mistake.what} {one.problem or 'ok'}\n{one.text}", flush=True)
    if only is None:
        PAGE.write_text(page(found))
    return int(any(one.problem for one in found))


if __name__ == "__main__":
    sys.exit(main())
