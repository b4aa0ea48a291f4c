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
    parser.add_argument("--small", action="store_true", help="at most two transformations")
    parser.add_argument("--regressions", action="store_true", help="run the kept cases")
    parser.add_argument("--skip", type=int, nargs="*", default=[], help="seeds that are not run")
    parser.add_argument(
        "--shrink-seconds", type=float, default=_SHRINK_SECONDS, help="for each kind"
    )
    parser.add_argument(
        "--out", type=Path, default=tempfile.gettempdir(), help="folder for failing cases"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run cases and print the tables. Return 1 if a case differs."""
    options = _parser().parse_args(argv)
    quiet()
    import tensorflow as tf

    from testing.same_meaning import runs
    from testing.same_meaning.cases import Case
    from testing.same_meaning.check import drawn
    from testing.same_meaning.servers import Servers

    # To optimise the functions of a pipeline takes longer than to read its few rows.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with Servers() as servers:
        if options.regressions:
            return runs.regressions(servers)
        if options.case is not None:
            file = Path(options.case)
            if file.exists():
                return runs.show(servers, Case.from_json(file.read_text()))
            case, _ = drawn(int(options.case), options.faults, options.small)
            return runs.show(servers, case)
        seeds = range(options.seed, options.seed + options.n)
        return runs.many(servers, seeds, options)


if __name__ == "__main__":
    sys.exit(main())
