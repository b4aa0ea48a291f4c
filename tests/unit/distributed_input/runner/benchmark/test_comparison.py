"""What a comparison says, for measurements that are made up."""

from __future__ import annotations

import json
from dataclasses import replace

from distributed_input.runner.benchmark.comparison import (
    Comparison,
    Measured,
    as_json,
    as_text,
    gain,
    warnings,
)


def measured(workers: int, rate: float, cpu: float, **parts: float) -> Measured:
    """Return ten seconds at a rate. CPU seconds are for 1,000 rows."""
    spent = {part: one * rate / 100 for part, one in parts.items()}
    return Measured(workers, int(rate * 10), 10.0, cpu * rate / 100, spent)


def compared(*through: Measured, base: float = 1000, cpu: float = 1.0) -> Comparison:
    in_process = [replace(measured(0, base, cpu), start=2.5), measured(0, base, cpu)]
    return Comparison("train", "input.yaml", 2, 0.0, in_process, through)


def test_faster_workers():
    found = compared(
        measured(1, 900, 0.1, worker=1.0, sidecar=0.1),
        measured(2, 1800, 0.1, worker=1.0, sidecar=0.1),
        measured(4, 1850, 0.1, worker=1.0, sidecar=0.1),
    )
    text, next_step = gain(found)
    assert "With 2 workers on this machine, a trainer gets 1.8 times the rows" in text
    assert "1800 instead of 1000 rows/s" in text
    assert next_step == "distributed-input run input.yaml --workers 2 -- python train.py"


def test_workers_that_share_the_cpus_relieve_the_trainers_host():
    text, next_step = gain(compared(measured(1, 800, 0.1, worker=1.25, sidecar=0.1)))
    assert "bring no more rows (0.80 times). They share its 2 CPUs" in text
    assert "would spend 0.2 instead of 1 CPU seconds on 1,000 rows" in text
    assert "Up to 1000, keep tf.data" in next_step
    assert "one CPU of a worker makes about 800 rows/s" in next_step


def test_rows_that_cost_nothing():
    text, next_step = gain(compared(measured(1, 300, 2.0, worker=1.0, sidecar=1.0), cpu=0.5))
    assert "Workers bring no gain: 0.30 times" in text
    assert next_step.startswith("Keep tf.data in the process.")


def test_without_cpu_times_of_other_processes():
    found = compared(measured(1, 300, 0.1))
    assert gain(found)[0].startswith("Workers bring no gain")
    assert as_text(found).splitlines()[2].split() == "1 worker 300 0.30 0.1 - - 0.0 s".split()
    assert as_json(found)["runs"][1]["workers_cpu"] is None


def test_the_table_and_the_json():
    found = compared(measured(2, 1800, 0.1, worker=1.0, dispatcher=0.5, sidecar=0.1))
    _, in_process, workers = as_text(found).splitlines()
    assert in_process.split()[-7:] == "1000 1.00 1 - - 2.5 s".split()
    assert workers.split() == "2 workers 1800 1.80 0.1 0.1 1.5 0.0 s".split()
    values = json.loads(json.dumps(as_json(found)))
    assert [one["workers"] for one in values["runs"]] == [0, 2]
    assert [one["ratio"] for one in values["runs"]] == [1.0, 1.8]
    assert values["runs"][0]["seconds"] == 20
    assert values["next"].startswith("distributed-input run")


def test_rates_in_process_that_differ_are_a_warning():
    one = measured(1, 900, 0.1)
    steady = Comparison("a", "f", 2, 0.0, [measured(0, 900, 1), measured(0, 1000, 1)], [one])
    varying = Comparison("a", "f", 2, 0.0, [measured(0, 700, 1), measured(0, 1000, 1)], [one])
    assert warnings(steady) == []
    assert "made 700 to 1000 rows/s" in warnings(varying)[0]


def test_a_rate_that_still_rises_is_a_warning():
    base = [measured(0, 1000, 1)]
    late = replace(measured(2, 1000, 1), early_rows=4000)
    (text,) = warnings(Comparison("a", "f", 2, 0.0, base, [late]))
    assert text.startswith("With 2 workers, the rate still rose")
    even = replace(late, early_rows=4600)
    assert warnings(Comparison("a", "f", 2, 0.0, base, [even])) == []


def test_a_machine_with_other_load_is_a_warning():
    measurements = [measured(0, 1000, 1)], [measured(1, 1000, 1)]
    assert warnings(Comparison("a", "f", 2, 0.5, *measurements)) == []
    (text,) = warnings(Comparison("a", "f", 2, 0.6, *measurements))
    assert "used 60% of the 2 CPUs" in text


def test_epochs_that_are_too_short_to_gain():
    many = Measured(0, 100, 10.0, 1.0, {}, epochs=50)
    text, next_step = gain(Comparison("a", "f", 2, 0.0, [many], [measured(1, 5, 0.1, worker=1.0)]))
    assert text.startswith("Workers bring no gain: an epoch takes 0.2 s")
    assert next_step.startswith("Keep tf.data in the process")
