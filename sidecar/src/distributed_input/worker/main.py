"""The command line of the worker."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from distributed_input.api import flags
from distributed_input.api.errors import ConfigError
from distributed_input.runtime import args as common
from distributed_input.runtime import shutdown
from distributed_input.worker.host.cpu_times import read_cpu_times


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("worker", "Runs splits of datasets and streams their rows.")
    common.add_listen(parser)
    parser.add_argument(
        flags.DISPATCHER, required=True, metavar="HOST:PORT", help="address of the dispatcher"
    )
    parser.add_argument(
        flags.ADVERTISE,
        default=flags.ADVERTISE_AUTO,
        metavar="HOST:PORT|auto",
        help="address at which sidecars reach this worker (default: the address of --listen; if "
        "that is all addresses, the one that reaches the dispatcher)",
    )
    parser.add_argument(
        flags.PARALLELISM,
        type=int,
        default=0,
        help="number of CPUs that may produce elements at the same time, over all streams. "
        "Elements that wait for storage do not count while CPUs are idle (default: the number of "
        "CPUs)",
    )
    parser.add_argument(
        flags.MAX_STREAMS,
        type=int,
        default=2048,
        help="maximum number of open streams of all jobs; more are refused (default: 2048, which "
        "is enough for a job with the maximum number of partitions and read-ahead)",
    )
    parser.add_argument(
        flags.SHARE_BYTES,
        type=int,
        default=64 << 20,
        help="maximum bytes of rows kept for other jobs of the same dataset (default: 64 MiB)",
    )
    parser.add_argument(
        flags.PATH,
        action="append",
        default=[],
        help="folder to insert at the start of the Python path; may be repeated",
    )
    parser.add_argument(
        flags.RELAXED,
        action="store_true",
        help="leave random ops in datasets as they are, and run no dataset serially. Random values "
        "in rows that are produced again after a failure may differ",
    )
    parser.add_argument(
        flags.STATE_DIR,
        metavar="DIR",
        help="folder in which splits save their state, so that a restored job does not compute "
        "their rows again. Workers of several inputs may share it. It has at most 128 MiB "
        "(default: none; sidecars keep the states for workers that fail)",
    )
    parser.add_argument(
        flags.STORE_DIR,
        metavar="DIR",
        help="folder in which workers store computed splits, so that later jobs and epochs with "
        "the same rows read them. Workers of one input may share it (default: none)",
    )
    parser.add_argument(
        flags.STORE_BYTES,
        type=int,
        default=10 << 30,
        help="maximum bytes of the files in --store-dir (default: 10 GiB)",
    )
    parser.add_argument(
        flags.MODULES,
        metavar="NAME,...",
        help="modules that may be imported as entry points, each with the modules below it "
        "(default: all)",
    )
    parser.add_argument(
        flags.IDLE_CPUS,
        action="store_true",
        help="use only CPUs that other processes of this host leave idle, at the lowest priority. "
        "--parallelism is then the maximum. Needs Linux",
    )
    parser.add_argument(
        flags.PLAIN_TRANSFER,
        action="store_true",
        help="with --tls-dir, do not encrypt direct connections, which carry rows: only for "
        "networks that all users may read",
    )
    parser.add_argument(
        flags.POD,
        default="",
        metavar="ID",
        help="id of the trainer's pod that this worker runs in. Only the sidecar with the same id "
        "uses this worker (default: all sidecars of the input use it)",
    )
    return parser


def _run(argv: Sequence[str] | None) -> int:
    args = common.parse("worker", _parser(), argv)
    shutdown.die_with_parent(os.environ)
    stopping = shutdown.Shutdown(args.grace_seconds)
    stopping.install()
    sys.path[:0] = args.path
    if args.idle_cpus:
        read_cpu_times()  # reports an error before TensorFlow is imported
    # Imports TensorFlow, which takes seconds: errors in the flags are reported before.
    try:
        from distributed_input.worker.serve import serve
    except ModuleNotFoundError as error:
        if error.name not in ("tensorflow", "xxhash"):
            raise
        raise ConfigError(
            f"workers need {error.name}, which is not installed: "
            "pip install 'distributed-input[worker]'"
        ) from error
    serve(args, stopping)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker until SIGTERM. Return the exit status."""
    return common.exit_code("worker", _run, argv)
