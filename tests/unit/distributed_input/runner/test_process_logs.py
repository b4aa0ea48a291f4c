"""The cause of an exit in a log, and trimming and keeping of logs."""

from __future__ import annotations

import json
import os

import pytest

from distributed_input.runner import process_logs

INFO = json.dumps({"level": "info", "message": "serving"})
ERROR = json.dumps({"time": "t", "level": "error", "message": "no disk", "path": "/data"})
ABSL = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
LIBRARY = "E0000 00:00:1763713440.000000    7 server.cc:5] shutting down"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([], ""),
        ([INFO], "serving"),
        ([ABSL, INFO, ABSL], "serving"),
        ([ABSL], ABSL),
        ([INFO, ERROR, INFO], "no disk path=/data"),
        ([INFO, "Traceback:", "  File ...", "ImportError: no x", LIBRARY], "ImportError: no x"),
        (["x" * 1000], "x" * 297 + "..."),
        (["{broken"], "{broken"),
    ],
)
def test_the_last_error_is_the_cause_of_the_exit(tmp_path, lines, cause):
    log = tmp_path / "process.log"
    assert process_logs.cause_of_exit(log) == ""
    log.write_text("".join(f"{line}\n" for line in lines))
    assert process_logs.cause_of_exit(log) == cause


def test_a_logged_exception_is_part_of_the_cause(tmp_path):
    log = tmp_path / "process.log"
    entry = {"level": "error", "message": "failed", "traceback": "Trace\n  x\nValueError: 3"}
    log.write_text(json.dumps(entry))
    assert process_logs.cause_of_exit(log) == "failed ValueError: 3"


def test_a_log_can_be_trimmed_while_a_process_writes_it(tmp_path):
    log = tmp_path / "process.log"
    writer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, b"".join(b"line %d\n" % n for n in range(50_000)))
    process_logs.trim(log, max_bytes=100_000)
    os.write(writer, b"next\n")
    os.close(writer)
    assert log.stat().st_size < 70_000
    assert process_logs.tail(log, 2) == ["line 49999", "next"]


def test_logs_are_copied_to_a_new_folder(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-0.log").write_text("x")
    kept = process_logs.keep(tmp_path / "logs", tmp_path / "new" / "kept")
    assert kept is not None
    assert (kept / "worker-0.log").read_text() == "x"


def test_only_the_newest_five_kept_logs_stay(tmp_path):
    for number in range(8):
        (tmp_path / f"logs-{number}").mkdir()
        os.utime(tmp_path / f"logs-{number}", (number, number))
    process_logs.prune(tmp_path, "logs-")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"logs-{n}" for n in range(3, 8)]
