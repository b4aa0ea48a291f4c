"""`distributed-input run`: from the command line to the exit status."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from distributed_input.api.errors import ConfigError
from distributed_input.api.flags import RANKS_PER_TRAINER, ranks_per_trainer
from distributed_input.runner import folders as run_folders
from distributed_input.runner import plan, process_logs, spec, start_checks
from distributed_input.runner.command_line import (
    COUNT,
    POSITIVE_SECONDS,
    SECONDS,
    Command,
    argument,
    command,
)
from distributed_input.runner.display import report
from distributed_input.runner.display.terminal import Terminal
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.supervisor import RunResult, Supervisor
from distributed_input.runtime.args import EXIT_CONFIG

_LOCAL = "local"
_TAIL_LINES = 15
_KEPT_PREFIX = "distributed-input-logs-"

_EXAMPLES = """\
examples:
  distributed-input run input.yaml -- python train.py
  distributed-input run input.yaml --workers 4 --report run.json -- python train.py --epochs 3
  distributed-input run input.yaml --workers local -- python train.py # use idle CPUs only
  distributed-input run input.yaml --trainers 2 -- python train.py    # a local TF_CONFIG cluster
  distributed-input run input.yaml --ranks-per-trainer 2 -- python train.py  # as torchrun does
  distributed-input run input.yaml -- sh -c 'python train.py | tee train.log'
  distributed-input run input.yaml --dry-run -- python train.py       # only print the commands

exit status:
  that of the trainer, or 128 + n if signal n ended it; of several, that of the first that failed
  2    FILE, a flag or the environment is invalid; no process was started
  3    a process could not start, or crashed repeatedly
  126  the trainer command is not executable
  127  the trainer command was not found

Ctrl-C reaches the trainer, which then has --grace-seconds to end. Press it again to end the
trainer sooner. All processes end with this command, even if it is killed.
"""


class _Run(Command):
    """Takes the trainer command after `--`, whose flags are not ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse our flags, and report a trainer command without `--`."""
        if ctx.resilient_parsing:  # a shell completes the words
            return super().parse_args(ctx, args)
        own, separator, command = args, "--" in args, []
        if separator:
            own, command = args[: args.index("--")], args[args.index("--") + 1 :]
        ctx.ignore_unknown_options = True  # the words of a trainer command without `--`
        super().parse_args(ctx, list(own))
        words = ctx.params["command"]
        if words and not separator and not words[0].startswith("-"):
            _print(f"add `--` before the trainer command: `-- {shlex.join(words)}`")
            ctx.exit(EXIT_CONFIG)
        ctx.ignore_unknown_options = False
        super().parse_args(ctx, list(own))
        if words and separator:
            ctx.fail(f"unexpected argument: {words[0]}")
        ctx.params["command"] = tuple(command)
        return []

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words after the name of the command."""
        return ["FILE", "[OPTIONS]", "--", "TRAINER COMMAND..."]


def _workers(text: str) -> int | str:
    return _LOCAL if text == _LOCAL else int(COUNT(text))


def _ranks(text: str) -> tuple[int, int]:
    """Return the ranks of each trainer, and the trainers of each rank."""
    return ranks_per_trainer(text, RANKS_PER_TRAINER)


_FOLDER = click.Path(path_type=Path)


@command(_EXAMPLES, _Run)
@argument("file", type=_FOLDER, help="YAML with one input or several.")
@argument("command", nargs=-1, type=click.Path(), help="The trainer command, after `--`.")
@click.option(
    "--workers",
    type=_workers,
    metavar="N|local",
    help="Number of workers of each input, or `local`: one worker that uses only the CPUs that the "
    "trainers leave idle, at the lowest priority. Default: the number in FILE.",
)
@click.option("--trainers", type=COUNT, default=1, help="Number of trainers.")
@click.option(
    "--ranks-per-trainer",
    type=_ranks,
    default="1",
    metavar="N|1/N",
    help="Number of processes of each trainer, which share its sidecar. Each runs the trainer "
    "command, with the variables of torchrun, and reads its own rows. With 1/N, N trainers read "
    "the same rows, as pods that share a data rank.",
)
@click.option(
    "--parallelism",
    type=COUNT,
    help="Rows that a worker computes at once. Default: as in FILE, or the number of cores.",
)
@click.option(
    "--dir",
    type=_FOLDER,
    help="Folder in which to create the run's private folder. Default: $XDG_RUNTIME_DIR or the "
    "folder for temporary files.",
)
@click.option("--dry-run", is_flag=True, help="Print the configuration and commands, then exit.")
@click.option("--keep-logs", type=_FOLDER, metavar="DIR", help="Copy the processes' logs to DIR.")
@click.option(
    "--report", type=_FOLDER, metavar="FILE.json", help="Write the final statistics as JSON."
)
@click.option(
    "--start-timeout",
    type=POSITIVE_SECONDS,
    default=120,
    help="Time limit for all processes to be ready.",
)
@click.option(
    "--grace-seconds",
    type=SECONDS,
    default=30,
    help="Time limit for the trainer to end after a signal.",
)
def run(**flags: Any) -> int:
    """Run an input pipeline and a trainer on this machine, with the same processes as in a cluster:
    a dispatcher and workers for every DistributedInput in FILE, a sidecar for every trainer, and
    the trainer itself. Processes that crash are restarted. When the trainer ends, all processes
    end.

    The trainer command follows "--". It has the same terminal, folder and environment as without
    this command, plus the variables that distributed_input.connect() reads.
    """
    return execute(SimpleNamespace(**flags))


def execute(
    options: SimpleNamespace, programs: Mapping[str, tuple[str, ...]] = plan.PROGRAMS
) -> int:
    """Run the command; return the exit status. Tests replace our processes with `programs`."""
    try:
        return _run(options, programs)
    except ConfigError as error:
        _print(str(error))
        return EXIT_CONFIG
    except KeyboardInterrupt:  # before the event loop starts, or after it ends
        return 128 + signal.SIGINT


def _run(options: SimpleNamespace, programs: Mapping[str, tuple[str, ...]]) -> int:
    command = options.command
    if not command:
        raise ConfigError("no trainer command: add it after `--`, as in `-- python train.py`")
    local = options.workers == _LOCAL
    each, span = options.ranks_per_trainer
    if options.trainers % span:
        raise ConfigError(
            f"--ranks-per-trainer 1/{span}: --trainers {options.trainers} is no multiple of {span}"
        )
    inputs = spec.load(
        options.file,
        1 if local else options.workers,
        options.parallelism,
        idle_cpus=local,
        trainers=options.trainers * each // span,
        warn=_print,
    )
    planned = plan.Plan(tuple(inputs), command, options.trainers, each, span, programs)
    if options.dry_run:
        print(_dry_run(planned), end="")
        return 0
    if any(one.idle_cpus for one in inputs) and sys.platform != "linux":
        raise ConfigError(
            "workers that use only idle CPUs (--workers local, spec.workers.local) need Linux: set "
            "a number of workers, for example --workers 2 (in Python: workers=2)"
        )
    if (problem := start_checks.command_problem(command[0])) is not None:
        status, text = problem
        _print(text)
        return status
    if options.report is not None:
        start_checks.check_target("--report", options.report, is_folder=False)
    if options.keep_logs is not None:
        start_checks.check_target("--keep-logs", options.keep_logs, is_folder=True)
    env = dict(os.environ)
    # This process forks while it has open channels. Its children only use vfork and exec, for
    # which gRPC's fork handlers do nothing but print warnings.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    # Otherwise gRPC's C++ code prints a line for each connection that ends.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with run_folders.create(options.dir, env, planned.buffer_bytes) as folders:
        limits = options.start_timeout, options.grace_seconds
        supervisor = Supervisor(planned, folders, env, Terminal(2, env), *limits)
        result = asyncio.run(supervisor.run())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the report is left
        return _finish(result, folders, options)


def _finish(result: RunResult, folders: RunFolders, options: SimpleNamespace) -> int:
    """Print the result, and keep the logs and the report."""
    final = result.report
    status: int = final["status"]
    if result.failed_log is not None:
        _print(final["cause"])
        for line in process_logs.tail(result.failed_log, _TAIL_LINES):
            print(f"  {result.failed_log.stem} | {line}", file=sys.stderr)
    if result.trained:
        seconds = final["wall_seconds"]
        _print(f"the trainer ran for {seconds:.1f} s and ended with status {status}")
        sys.stderr.write(report.as_text(final))
    _keep_logs(result, folders, options.keep_logs)
    if options.report is not None:
        try:
            options.report.write_text(json.dumps(final, indent=2) + "\n")
        except OSError as error:
            _print(f"--report {options.report}: {error.strerror}")
            return status or EXIT_CONFIG
    return status


def _keep_logs(result: RunResult, folders: RunFolders, wanted: Path | None) -> None:
    """Copy the logs to the folder `wanted`; those of a failed run are kept in any case."""
    targets = [] if wanted is None else [wanted]
    if result.report["status"] and not result.interrupted:
        parent = Path(tempfile.gettempdir())
        targets.append(parent / (_KEPT_PREFIX + folders.run))
    for target in targets:
        if target != wanted:
            process_logs.prune(target.parent, _KEPT_PREFIX)
        if process_logs.keep(folders.logs, target):
            _print(f"the logs are in {target}")
            return
        _print(f"the logs cannot be copied to {target}")


def _dry_run(planned: plan.Plan) -> str:
    """Return the sidecars' configuration and all command lines."""
    paths = RunFolders("RUN", Path("/RUN"), Path("/SHARED"))
    lines = ["# configuration of the sidecars"]
    lines += json.dumps(plan.sidecar_config(planned), indent=2).splitlines()
    processes = [*plan.dispatchers(planned, paths), *plan.other_processes(planned, paths)]
    for start, one in enumerate(processes):
        lines += _commented(one.name, one.command(start))
    for index in range(planned.consumers):
        ports = list(range(1, planned.consumers + 2))
        added = plan.trainer_env({}, planned, paths, index, ports)
        settings = [f"{name}={value}" for name, value in added.items()]
        lines += _commented(f"trainer-{index}", ["env", *settings, *planned.command])
    return "".join(f"{line}\n" for line in lines)


def _commented(name: str, command: Sequence[str]) -> list[str]:
    return [f"# {name}", shlex.join(command)]


def _print(text: str) -> None:
    print(f"distributed-input: {text}", file=sys.stderr, flush=True)
