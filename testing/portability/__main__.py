"""Runs tests and the digits example without the calls that macOS lacks.

python -m testing.portability            all: `make portability`
python -m testing.portability --quick    a part, in seconds: also in `make test`
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from testing.portability.shim import SEEN_ENV

ROOT = Path(__file__).parents[2]
_UNIT = "tests/unit/distributed_input"
_RUN = "tests/integration/run"

QUICK = (
    f"{_UNIT}/link/trainer/test_trainer_end.py",
    f"{_UNIT}/link/blocks/test_direct_reader.py::"
    "test_without_such_memory_the_unix_socket_of_a_path_carries_the_rows",
    f"{_UNIT}/runtime/test_shutdown.py::test_a_child_ends_with_its_parent",
    f"{_UNIT}/runner/test_process_wrapper.py",
    f"{_RUN}/test_local.py::test_connect_reads_every_row_once",
    f"{_RUN}/test_run_supervision.py::test_the_trainer_ends_with_a_killed_wrapper",
)
TESTS = (
    *(f"{_UNIT}/{part}" for part in ("client", "runner", "runtime", "sidecar", "worker")),
    *(f"{_UNIT}/{part}" for part in ("test_trainer.py", "test_sidecar.py")),
    *(f"{_RUN}/test_{part}.py" for part in ("local", "run_supervision", "run_real_processes")),
)
NOT_ON_MACOS = {
    "shared memory between a worker and a sidecar": (
        "test_shared_region",
        "test_only_large_messages_are_in_the_shared_memory",
        "test_tcp_is_used_if_",
        "test_a_connection_without_a_ticket_is_refused",
        "test_other_memory_is_not_used",
        "test_the_path_of_a_unix_socket_follows_from_the_workers_address",
        "test_a_connection_that_ends_releases_its_memory",
    ),
    "memory of buffers that is allocated at the start": (
        "test_a_full_volume_is_an_error_that_names_the_folder_and_the_size",
        "test_all_memory_is_allocated_at_the_start",
        "test_a_retired_pool_keeps_the_memory_of_slots_in_use_only",
    ),
    "settings of glibc's malloc": (
        "test_freed_memory_is_reused",
        "test_settings_of_the_user_are_kept",
    ),
    "metrics of the process": ("test_samples_are_rendered_and_failing_sources_are_skipped",),
    "workers that use only idle CPUs": (
        "test_a_local_worker_has_the_lowest_priority_and_delivers_every_row",
        "test_cpu_times",
        "test_only_the_time_between_the_readings_counts",
        "test_the_thread_ticks_until_it_is_stopped",
        "test_the_priority_of_the_process_and_of_its_own_session",
    ),
    "tests that read /proc themselves": ("test_nothing_is_left_at_the_end",),
    "orphans that have cleared their environment": (
        "test_no_process_outlives_a_killed_runner and env",
        "test_background_processes_end_with_the_trainer",
    ),
}
"""What stays Linux-only, and its tests. `--help` of pytest: -k."""
SHIMMED = ("process_wrapper", "trainer_proxy", "worker", "sidecar", "dispatcher")
"""Programs of which the shim must have been applied to at least one process."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tests; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m testing.portability", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run a part, in seconds")
    quick = parser.parse_args(argv).quick
    folder = Path(tempfile.mkdtemp(prefix="portability-"))
    try:
        return _run(quick, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(quick: bool, folder: Path) -> int:
    seen = folder / "seen"
    seen.mkdir()
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).with_name("path")), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        SEEN_ENV: str(seen),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    skipped = " or ".join(f"({one})" for names in NOT_ON_MACOS.values() for one in names)
    tests = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder / 't'}"]
    tests += ["-p", "testing.portability.short_paths", "-p", "no:cacheprovider"]
    tests += ["-k", f"not ({skipped})", *(QUICK if quick else TESTS)]
    commands = [tests]
    if not quick:
        example = [sys.executable, "examples/digits/train.py"]
        run = [sys.executable, "-m", "distributed_input.cli", "run", "examples/digits/input.yaml"]
        commands.append([*run, "--", *example])
    failed = [command for command in commands if not _succeeds(command, env)]
    missing = [one for one in SHIMMED if not _was_seen(one, seen)]
    if missing:
        print(f"the shim was not applied to: {', '.join(missing)}", file=sys.stderr)
    return 1 if failed or missing else 0


def _succeeds(command: Sequence[str], env: Mapping[str, str]) -> bool:
    print("==>", *command, flush=True)
    return subprocess.run(command, env=env, cwd=ROOT).returncode == 0


def _was_seen(program: str, seen: Path) -> bool:
    names = (f"distributed_input.{program}", f"/{program}.py")
    return any(name in one.read_text() for one in seen.iterdir() for name in names)


if __name__ == "__main__":
    sys.exit(main())
