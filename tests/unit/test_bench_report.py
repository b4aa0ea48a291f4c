"""The report of `make bench`: ratios in the same round, and sums of several trainers."""

from __future__ import annotations

from typing import Any

from testing.bench import report
from testing.bench.__main__ import together
from testing.bench.case import (
    DATA_PLANES,
    DEFAULT,
    LOCAL,
    OURS,
    SERVICE,
    SHORT,
    Case,
    DataPlane,
)
from testing.bench.processes import switches_since


def measured(rate: float, first: float = 10.0, **cpu: float) -> dict[str, Any]:
    """Return a measurement of two seconds, 10 batches and 1 GB."""
    size = {"peak": 1 << 20, "beyond_slots": 1 << 20, "threads": 3}
    return {
        "seconds": 2.0,
        "rows": 2 * rate,
        "bytes": 1e9,
        "batches": 10,
        "start": {"first_batch": 0.5, "seconds": 10.0, "rows": 10 * first},
        "cpu": cpu,
        "switches": dict.fromkeys(cpu, 100),
        "memory": dict.fromkeys(cpu, size),
    }


SLOW, FAST = measured(100, 40, trainer=2.0, worker=1.0), measured(400, 80, trainer=1.0, worker=1.0)
MINE = measured(200, 10, trainer=0.5, sidecar=1.0, worker=2.0)


def test_a_cluster_runs_encrypted_across_hosts_and_that_is_measured_first():
    assert DATA_PLANES[OURS] == DataPlane("Auto", encrypted=True, one_host=False)
    assert {LOCAL, SERVICE, OURS} <= {SHORT[name] for name in DEFAULT}


def test_ratios_compare_systems_in_the_same_round():
    rounds = [{OURS: MINE, SERVICE: SLOW}, {OURS: MINE, SERVICE: FAST}]
    assert report.ratios(rounds, OURS, SERVICE, report.rows_per_second) == [2.0, 0.5]
    assert report.ratios(rounds, OURS, LOCAL, report.rows_per_second) == [None, None]


def test_the_trainers_host_has_the_trainer_and_its_sidecar():
    assert report.host_cpu(MINE, "GB") == 1.5
    assert report.host_cpu(SLOW, "GB") == 2.0
    assert report.cpu(MINE, "GB") == 3.5


def test_the_summary_has_the_start_the_steady_state_and_the_cpu():
    case = Case("family", "name", "module:function", {}, systems=(LOCAL, SERVICE, OURS))
    rounds = [{LOCAL: FAST, SERVICE: SLOW, OURS: MINE}]
    machine = {**report.machine(), "cpu": "a CPU"}
    settings = {"rounds": 1, "seconds": 2.0, "first_seconds": 10.0, "one_host": False}
    cases = [{"case": vars(case), "rounds": rounds}]
    lines = report.markdown({"machine": machine, "settings": settings, "cases": cases}).splitlines()
    (row,) = [line for line in lines if line.startswith("| family: name, 1 worker | ")]
    cells = [cell.split(" (")[0].strip() for cell in row.split("|")[2:-1]]
    # Rates of the first seconds and then; CPU of the host and of all; switches; in process.
    assert cells == [OURS, "0.25", "2", "0.75", "1.17", "1.5", "0.125", "0.5"]
    text = " ".join(lines)
    assert f"a CPU, {machine['cores']} cores" in text
    assert f"Commit {machine['commit']}, {machine['date']}" in text
    assert any("only shows that the benchmark runs" in line for line in lines)


def test_switches_of_new_and_old_threads():
    before = {(1, 1): 10, (1, 2): 50}
    assert switches_since(before, {(1, 1): 15, (1, 3): 7}) == 12


def test_trainers_share_the_workers_that_each_of_them_measured():
    found = together([MINE, {**MINE, "start": {**MINE["start"], "first_batch": 0.7}}])
    assert found["cpu"] == {"trainer": 1.0, "sidecar": 2.0, "worker": 2.0}
    assert found["switches"] == {"trainer": 200, "sidecar": 200, "worker": 100}
    assert found["rows"] == 2 * MINE["rows"]
    assert report.first_rows_per_second(found) == 20
    assert found["start"]["first_batch"] == 0.7


def test_a_spread_has_the_median_and_the_range_of_several_rounds():
    assert report.spread([3.0, 1.0, 2.0, None]) == "2 (1 to 3)"
    assert report.spread([2.0]) == "2"
    assert report.spread([None]) == "-"
