"""The command line; see the docstring of the package."""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testing.same_meaning.quiet import quiet

_SHRINK_SECONDS = 60.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testing.same_meaning")
    parser.add_argument("--n", type=int, default=100, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    parser.add_argument("--case", help="run one case: a seed, or a file with a case as JSON")
    parser.add_argument("--faults", action="store_true", help="kill a worker or restore a position")
    parser.add_argument("--shrink-seconds", type=float, default=_SHRINK_SECONDS, help="for each kind")
    parser.add_argument("--out", default=tempfile.gettempdir(), help="folder for failing cases")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run cases and print the tables. Return 1 if a case differs."""
    options = _parser().parse_args(argv)
    quiet()
    from testing.same_meaning import runs
    from testing.same_meaning.cases import Case
    from testing.same_meaning.check import drawn
    from testing.same_meaning.servers import Servers

    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with Servers() as servers:
        if options.case is not None:
            file = Path(options.case)
            seeded = options.case.isdigit()
            case = (
                drawn(int(options.case), options.faults)
                if seeded
                else Case.from_json(file.read_text())
            )
            return runs.show(servers, case)
        seeds = range(options.seed, options.seed + options.n)
        return runs.many(
            servers, seeds, options.faults, options.shrink_seconds, Path(options.out)
        )


if __name__ == "__main__":
    sys.exit(main())
