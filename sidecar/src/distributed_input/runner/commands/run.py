"""`distributed-input run`: from the command line to the exit status."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from distributed_input.api.errors import ConfigError
from distributed_input.runner import folders as folding
from distributed_input.runner import plan, spec
from distributed_input.runner.display import logfiles, report
from distributed_input.runner.display.terminal import Terminal
from distributed_input.runner.folders import Folders
from distributed_input.runner.processes import guard
from distributed_input.runner.runner import Patience, Result, Runner
from distributed_input.runtime.args import EXIT_CONFIG, positive_seconds, seconds

_TAIL_LINES = 15
_KEPT_PREFIX = "distributed-input-logs-"

_DESCRIPTION = """\
Run an input pipeline and a trainer on this machine, as the cluster would: a dispatcher and
workers for every DistributedInput in FILE, a sidecar for every trainer, then the trainer
itself. Parts that crash are restarted; when the trainer ends, everything ends.

The trainer command stands behind "--". It runs as it would without us: same terminal, same
folder, same environment, plus what distributed_input.connect() needs.
"""
_EXAMPLES = """\
examples:
  distributed-input run input.yaml -- python train.py
  distributed-input run input.yaml --workers 4 --report run.json -- python train.py --epochs 3
  distributed-input run input.yaml --trainers 2 -- python train.py    # a local TF_CONFIG cluster
  distributed-input run input.yaml -- sh -c 'python train.py | tee train.log'
  distributed-input run input.yaml --dry-run -- python train.py       # only say what would run

exit status:
  that of the trainer (128 + n where signal n ended it); of several, of the first that failed
  2    FILE, a flag or the surroundings do not fit; nothing was started
  3    a part could not be started, or crashed again and again
  127  the trainer command was not found

Ctrl-C reaches the trainer, which has --grace-seconds to end; press it again to hurry. All
processes end with the runner, even if that is killed.
"""


def parser() -> argparse.ArgumentParser:
    """The flags of `distributed-input run`."""
    made = argparse.ArgumentParser(
        prog="distributed-input run",
        usage="distributed-input run FILE [flags] -- TRAINER COMMAND...",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("file", metavar="FILE", type=Path, help="YAML with one input or several")
    made.add_argument(
        "--workers", type=_count, metavar="N", help="workers of each input (default: FILE's)"
    )
    made.add_argument(
        "--trainers", type=_count, metavar="N", default=1, help="copies of the trainer (default: 1)"
    )
    made.add_argument(
        "--parallelism",
        type=_count,
        metavar="N",
        help="rows that a worker computes at once (default: FILE's, else its cores)",
    )
    made.add_argument(
        "--dir",
        type=Path,
        help="where to make the run's private folder (default: a runtime folder)",
    )
    made.add_argument("--dry-run", action="store_true", help="print what would run, and end")
    made.add_argument("--keep-logs", type=Path, metavar="DIR", help="copy the parts' logs to DIR")
    made.add_argument("--report", type=Path, metavar="FILE.json", help="write the numbers as JSON")
    _add_times(made)
    return made


def _add_times(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--start-timeout",
        type=positive_seconds,
        metavar="SECONDS",
        default=120.0,
        help="for all parts to serve (default: 120)",
    )
    made.add_argument(
        "--grace-seconds",
        type=seconds,
        metavar="SECONDS",
        default=30.0,
        help="for the trainer to end when it was asked to (default: 30)",
    )


def main(argv: Sequence[str], programs: plan.Programs | None = None) -> int:
    """Run; returns the exit status. `programs`: other processes than ours, for tests."""
    try:
        return _run(argv, programs or plan.Programs())
    except ConfigError as error:
        _say(str(error))
        return EXIT_CONFIG
    except KeyboardInterrupt:  # before the loop, or behind it
        return 128 + signal.SIGINT


def _run(argv: Sequence[str], programs: plan.Programs) -> int:
    border = list(argv).index("--") if "--" in argv else len(argv)
    options = parser().parse_args(argv[:border])
    command = tuple(argv[border + 1 :])
    if not command:
        raise ConfigError("no trainer command: write it behind `--`, as in `-- python train.py`")
    inputs = spec.load(options.file, options.workers, options.parallelism)
    what = plan.Plan(tuple(inputs), command, trainers=options.trainers, programs=programs)
    if options.dry_run:
        print(_described(what), end="")
        return 0
    if shutil.which(command[0]) is None:
        _say(f"{command[0]}: command not found")
        return guard.EXIT_NOT_FOUND
    for file in (options.report, options.keep_logs):
        if file is not None and not file.absolute().parent.is_dir():
            raise ConfigError(f"{file}: there is no folder {file.parent}")
    env = dict(os.environ)
    # This process forks while it has channels open. It starts children by vfork and exec alone,
    # where grpc's fork handlers have nothing to do but complain.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    # And its C++ would tell everyone's terminal about each connection that ends.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with folding.made(options.dir, env, what.buffers) as folders:
        patience = Patience(start=options.start_timeout, grace=options.grace_seconds)
        result = asyncio.run(_execute(what, folders, env, patience))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all has ended: only the report is left
        return _close(result, folders, options)


async def _execute(
    what: plan.Plan, folders: Folders, env: Mapping[str, str], patience: Patience
) -> Result:
    return await Runner(what, folders, env, Terminal(2, env), patience).run()


def _close(result: Result, folders: Folders, options: argparse.Namespace) -> int:
    """Say how it went, and keep what should be kept."""
    told = result.report
    if result.guilty_log is not None:
        _say(told.cause)
        for line in logfiles.tail(result.guilty_log, _TAIL_LINES):
            print(f"  {result.guilty_log.stem} | {line}", file=sys.stderr)
    if result.trained:
        _say(f"the trainer ran for {told.seconds:.1f} s; status {told.status}")
        sys.stderr.write(report.as_text(told))
    target: Path | None = options.keep_logs
    if target is None and told.status and not result.interrupted:
        parent = Path(tempfile.gettempdir())
        logfiles.prune(parent, _KEPT_PREFIX)
        target = parent / (_KEPT_PREFIX + folders.run)
    if target is not None and (kept := logfiles.keep(folders.logs, target)):
        _say(f"the logs are in {kept}")
    if options.report is not None:
        try:
            options.report.write_text(json.dumps(report.as_json(told), indent=2) + "\n")
        except OSError as error:
            _say(f"--report {options.report}: {error.strerror}")
            return told.status or EXIT_CONFIG
    return told.status


def _described(what: plan.Plan) -> str:
    """What would run: the configuration, and every command line."""
    names = Folders("RUN", Path("/RUN"), Path("/SHARED"))
    files = plan.Files(names)
    dispatchers = {one.name: f"DISPATCHER-{one.name}" for one in what.inputs}
    lines = ["# configuration of the sidecars"]
    lines += json.dumps(plan.sidecar_config(what), indent=2).splitlines()
    for one in what.inputs:
        listen = f"127.0.0.1:{one.port}"
        lines += _commented(
            what.part("dispatcher", one), plan.dispatcher_command(what, files, one, listen)
        )
        for index in range(one.workers):
            address = dispatchers[one.name]
            command = plan.worker_command(what, files, one, index, address)
            lines += _commented(what.part("worker", one, index), command)
    for index in range(what.trainers):
        command = plan.sidecar_command(what, files, index, dispatchers)
        lines += _commented(what.part("sidecar", index=index), command)
    for index in range(what.trainers):
        added = plan.trainer_env({}, what, files, index, list(range(1, what.trainers + 1)))
        settings = [f"{name}={value}" for name, value in added.items()]
        lines += _commented(f"trainer-{index}", ["env", *settings, *what.command])
    return "".join(f"{line}\n" for line in lines)


def _commented(name: str, command: Sequence[str]) -> list[str]:
    return [f"# {name}", shlex.join(command)]


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _say(text: str) -> None:
    print(f"distributed-input: {text}", file=sys.stderr, flush=True)
