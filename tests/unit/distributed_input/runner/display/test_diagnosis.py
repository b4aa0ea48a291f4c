"""Why a trainer waits, from two samples of a dispatcher."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api.stalls import FULL_QUEUES
from distributed_input.runner.display.diagnosis import Cause, Diagnosis, diagnose
from distributed_input.runner.display.stats import (
    Consumer,
    HostCpus,
    StatusSample,
    Worker,
)
from tests.unit.distributed_input.runner import samples

LARGE_SPLITS = f"{FULL_QUEUES}. Raise spec.partitions"
LIMIT = "the dataset has 16 splits. Raise spec.numSplits"


def trainer(index: int = 0, **now: Any) -> Consumer:
    """Return a trainer that reads 100 rows/s and waits half of its time."""
    values = {"epoch": 0, "rows": 2000, "batches": 200, "wait_seconds": 10.0, "wall_seconds": 20.0}
    limits = {"useful_workers": 16, "useful_limit": LIMIT, "count": 1}
    return samples.consumer(**{**values, **limits, "index": index, **now})


def worker(name: str = "w", **now: Any) -> Worker:
    """Return a worker with two CPUs, which it has used since its start."""
    values = {"rows": 2000, "busy_seconds": 40.0, "permit_seconds": 40.0, "open_streams": 8}
    return samples.worker(name, **{**values, "parallelism": 2, "capacity": 2, **now})


def earlier(status: StatusSample) -> StatusSample:
    """Return the sample 10 s before, if all rates were constant for 20 s."""
    consumers, workers = [Consumer() for _ in status.consumers], [Worker() for _ in status.workers]
    for now, then in zip([*status.consumers, *status.workers], [*consumers, *workers], strict=True):
        then.CopyFrom(now)
        for field, value in now.ListFields():
            if field.name == "rows" or field.name == "batches":
                setattr(then, field.name, value // 2)
            elif field.name.endswith("_seconds"):
                setattr(then, field.name, value / 2)
    return StatusSample(consumers, workers)


def only(*processes: Consumer | Worker, host_busy: float | None = None) -> Diagnosis:
    """Return the diagnosis of the first trainer."""
    status = StatusSample(
        [one for one in processes if isinstance(one, Consumer)],
        [one for one in processes if isinstance(one, Worker)],
    )
    before = earlier(status)
    if host_busy is not None:
        before = replace(before, host=HostCpus(1000, 9000))
        status = replace(status, host=HostCpus(1000 + round(100 * host_busy), 9100))
    return diagnose(before, status)[0]


def test_without_a_trainer_it_is_the_cause():
    found = only(worker())
    assert (found.trainer, found.cause, found.waits) == ("", Cause.TRAINER, None)
    assert found.text == "No trainer is connected."


@pytest.mark.parametrize("trainers", [[], [trainer(batches=0)], [trainer(no_trainer=True)]])
def test_an_error_of_the_dataset_is_the_cause_unless_rows_are_read(trainers):
    found = only(*trainers, worker(), worker("x", failure=samples.FAILURE))
    assert found.cause is Cause.DATASET
    assert found.text == f"An error of the last minutes: {samples.FAILED}, worker x:1."
    assert "Correct dataset_fn" in found.next_step


def test_an_earlier_error_does_not_make_a_trainer_wait_that_reads():
    found = only(trainer(), worker(failure=samples.FAILURE))
    assert found.cause is Cause.WORKERS


def test_busy_workers_are_too_few_and_their_number_is_computed():
    found = only(trainer(), worker())
    assert (found.trainer, found.cause) == ("train/0", Cause.WORKERS)
    assert (found.waits, found.rows_per_second) == (0.5, 100.0)
    assert found.text == "1 worker used 100% of 2 CPUs."
    # In 5 of 10 s, the trainer reads 1000 rows. The worker makes 1000 rows in 10 s.
    assert "would read 200 rows/s, and one worker makes 100 rows/s: use 2 workers with 2 CPUs" in (
        found.next_step
    )


def test_the_demand_of_a_trainer_that_only_waits_is_unknown():
    found = only(trainer(wait_seconds=19.9), worker("a"), worker("b"), worker("c"))
    assert found.cause is Cause.WORKERS
    assert found.next_step == "Use more workers, for example 6, and explain again."


def test_all_trainers_of_a_job_need_rows():
    found = only(trainer(count=2), trainer(1, count=2), worker(rows=4000))
    assert "2 trainers would read 400 rows/s, and one worker makes 200 rows/s: use 2" in (
        found.next_step
    )


def test_a_trainer_that_hardly_waits_needs_nothing():
    found = only(trainer(wait_seconds=0.9), worker(busy_seconds=1.0))
    assert (found.cause, found.text) == (Cause.NONE, "The input is fast enough.")
    assert found.waits == pytest.approx(0.045)


def test_without_workers_they_are_the_cause():
    assert only(trainer()).text == "No worker is registered."
    found = only(trainer(), worker(draining=True))
    assert (found.cause, found.text) == (Cause.WORKERS, "No worker is registered.")


def test_a_row_that_takes_long_is_the_cause():
    found = only(trainer(), worker(), worker("slow", stalled=[samples.STALLED]))
    assert found.cause is Cause.DATASET
    assert f"{samples.STALL}, on worker slow:1" in found.text


def test_lent_permits_mean_that_rows_wait_for_storage():
    found = only(trainer(), worker(capacity=8))
    assert found.cause is Cause.STORAGE
    assert "8 rows are made at the same time on 2 CPUs" in found.text


def test_busy_workers_that_use_little_cpu_time_wait_for_storage():
    found = only(trainer(), worker(cpu_seconds=2.0))
    assert found.cause is Cause.STORAGE
    assert "they use 5% of their CPUs, and 2 rows are made at the same time on 2 CPUs" in found.text
    used = only(trainer(), worker(cpu_seconds=14.0))
    assert used.cause is Cause.WORKERS, "0.7 of the machine's CPUs"
    times = {"cpu_seconds": 14.0, "permit_seconds": 160.0, "busy_seconds": 160.0}
    used = only(trainer(), worker("w", parallelism=8, capacity=8, **times))
    assert used.cause is Cause.WORKERS, "a Python function has the interpreter's lock"
    found = only(trainer(), worker(cpu_seconds=2.0), host_busy=1.0)
    assert found.cause is Cause.HOST, "they may wait for a CPU"


def test_more_cpus_than_splits_cannot_help():
    found = only(trainer(useful_workers=2), worker())
    assert found.cause is Cause.DATASET
    assert "more workers cannot help: at most 2 splits are open" in found.text
    assert found.next_step == f"What limits them: {LIMIT}."


def test_idle_workers_with_few_open_splits_lack_splits():
    found = only(trainer(), worker(busy_seconds=10.0, open_streams=1))
    assert found.cause is Cause.DATASET
    assert found.text == (
        "Open splits of the dataset: 1. CPUs of workers: 2. The workers are 25% busy."
    )


def test_idle_workers_with_full_queues_lack_splits():
    found = only(trainer(useful_limit=LARGE_SPLITS), worker(busy_seconds=10.0))
    assert (found.cause, found.next_step) == (Cause.DATASET, f"What limits them: {LARGE_SPLITS}.")


def test_idle_workers_and_an_empty_buffer_are_the_network():
    found = only(trainer(buffer_fill=0.1), worker(busy_seconds=10.0))
    assert found.cause is Cause.NETWORK
    assert "Open splits: 8. Filled part of the buffer: 10%. The workers are 25% busy." in found.text


def test_idle_workers_and_a_filled_buffer_are_the_sidecar():
    assert only(trainer(buffer_fill=0.9), worker(busy_seconds=10.0)).cause is Cause.SIDECAR


def test_a_trainer_that_waits_for_others_names_the_slowest():
    waiting = "the other trainers' end of the epoch"
    found = only(trainer(waiting_for=waiting, count=3), trainer(1), worker())
    assert found.cause is Cause.TRAINER
    assert found.text == f"It waits for {waiting}. 1 of 3 trainers are not connected."
    found = only(trainer(waiting_for=waiting, count=2), trainer(1, batches=7), worker())
    assert found.text == (
        f"It waits for {waiting}. train/1 has read the least: 7 batches of epoch 0, and this "
        "trainer 200."
    )


def test_a_trainer_without_its_first_batch_waits_for_the_dataset():
    first = trainer(rows=0, batches=0, wait_seconds=0.0, wall_seconds=0.0, waiting_for="a worker")
    found = only(first, worker(rows=0))
    assert (found.waits, found.rows_per_second) == (None, None)
    assert found.text == "It has no batch yet. It waits for a worker."


@pytest.mark.parametrize(
    "fields",
    [
        {"buffer_fill": 0.8},
        # Its first report came before its first step, and the sidecar still fills the buffer.
        {"pauses": True, "batches": 0, "rows": 0, "waiting_for": "rows of partition 7"},
    ],
)
def test_a_trainer_that_does_not_read_is_the_cause(fields):
    now = StatusSample([trainer(**fields)], [worker()])
    (found,) = diagnose(now, now)
    assert found.cause is Cause.TRAINER
    assert found.text.startswith("It reads nothing, and does not wait for a batch")


def test_a_trainer_that_has_ended_or_not_begun_is_no_stall_of_the_input():
    now = StatusSample([trainer(buffer_fill=0.8)], [worker()])
    (found,) = diagnose(now, replace(now, consumers=[trainer(no_trainer=True)]))
    assert "none has called distributed_input.connect()" in found.text
    (found,) = diagnose(now, replace(now, consumers=[trainer(finished=True)]))
    assert (found.cause, found.text) == (Cause.NONE, "It has finished.")


def test_a_wait_that_lasts_is_a_wait():
    """The trainer reports its waits when they end."""
    now = StatusSample([trainer(waiting_for="row 7 of partition 0")], [worker()])
    (found,) = diagnose(earlier(now), now)
    assert found.cause is Cause.WORKERS
    before = replace(earlier(now), consumers=now.consumers)
    (found,) = diagnose(before, now)
    assert (found.waits, found.cause) == (None, Cause.WORKERS)


def test_a_trainer_that_opened_the_job_again_counts_from_zero():
    before = StatusSample([trainer(rows=9000, wall_seconds=90.0, wait_seconds=80.0)], [worker()])
    (found,) = diagnose(before, StatusSample([trainer()], [worker()]))
    assert (found.waits, found.rows_per_second) == (0.5, 100.0)


def test_trainers_are_sorted_and_each_has_a_diagnosis():
    now = StatusSample([trainer(1), trainer(0)], [worker()])
    assert [one.trainer for one in diagnose(earlier(now), now)] == ["train/0", "train/1"]


# A machine without idle CPUs.


@pytest.mark.parametrize("buffer", [0.0, 0.9])
def test_processes_that_wait_for_cpus_are_no_slow_network_or_sidecar(buffer):
    idle = worker(busy_seconds=8.0)
    busy_host = only(trainer(buffer_fill=buffer, useful_limit=""), idle, host_busy=0.93)
    assert busy_host.cause is Cause.HOST
    assert busy_host.text.startswith("93% of this machine's CPUs are in use")
    for share in (None, 0.8):
        other = only(trainer(buffer_fill=buffer, useful_limit=""), idle, host_busy=share)
        assert other.cause is (Cause.SIDECAR if buffer else Cause.NETWORK)


def test_more_workers_do_not_help_on_a_machine_without_idle_cpus():
    found = only(trainer(), worker(), host_busy=1.0)
    assert found.cause is Cause.WORKERS
    assert found.text == "1 worker used 100% of 2 CPUs, and 100% of this machine's CPUs are in use."
    assert found.next_step.startswith("More workers on this machine cannot help.")
