"""The guards of exactly-once delivery that no schedule of faults reaches, each with its test.

`testing.chaos.mutants` has the guards that a ledger of rows reports.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guard:
    """One guard.

    Attributes:
        name: what happens without the guard.
        module: path in the package `distributed_input`.
        text: text in the module, which occurs once.
        replacement: the text without the guard.
        test: the test that fails without the guard, for pytest.
    """

    name: str
    module: str
    text: str
    replacement: str
    test: str


_UNIT = "tests/unit/distributed_input"
_CHECKPOINTS = "tests/integration/trainer/test_checkpoints.py"
_CHANGES = "tests/integration/delivery/test_changed_data.py"

GUARDS = (
    Guard(
        "a running iterator ignores a restore",
        "trainer/tensorflow/distribute.py",
        "        if self._dataset is not None and tf.executing_eagerly():\n",
        "        if False:\n",
        f"{_CHECKPOINTS}::test_a_running_iterator_moves_to_the_restored_position",
    ),
    Guard(
        "an iterator of another thread takes the restored position",
        "trainer/consumer.py",
        " and self._restored_by == threading.get_ident()",
        "",
        f"{_CHECKPOINTS}::test_an_iterator_in_another_thread_does_not_move",
    ),
    Guard(
        "a captured iterator delivers old batches after a restore",
        "trainer/tensorflow/step_counter.py",
        "tf.debugging.Assert(_read(counter)[0] > 0, [_CAPTURED])",
        "tf.debugging.Assert(_read(counter)[0] < 1 << 62, [_CAPTURED])",
        f"{_CHECKPOINTS}::test_an_iterator_of_a_function_moves_to_the_restored_position",
    ),
    Guard(
        "steps of an older iterator count as steps of the newest",
        "trainer/tensorflow/step_counter.py",
        "        if _read(counter).numpy()[2] != number.numpy():\n",
        "        if False:\n",
        f"{_CHECKPOINTS}::test_an_older_iterator_is_refused_and_does_not_count",
    ),
    Guard(
        "a restored position may have another number of splits",
        "order/identity.py",
        '        ("spec.numSplits", position.num_splits, job.num_splits),\n',
        "",
        f"{_CHANGES}::test_a_position_of_another_number_of_splits_is_an_error",
    ),
    Guard(
        "a rejected position is accepted by the next iterator",
        "order/identity.py",
        "    if not position.format:\n        position.format",
        "    if True:\n        position.format",
        f"{_UNIT}/order/test_identity.py",
    ),
    Guard(
        "a split may differ from the definition of the run",
        "worker/datasets/definitions.py",
        "    if found != expected:\n",
        "    if False:\n",
        f"{_UNIT}/worker/datasets/test_definitions.py",
    ),
    Guard(
        "the next run uses the definition of the last one",
        "dispatcher/jobs.py",
        "            return entry.is_read(now, other_than, self._limits.hold)\n",
        "            return True\n",
        f"{_UNIT}/dispatcher/test_jobs.py",
    ),
    Guard(
        "the next run begins with the facts of the last one",
        "dispatcher/jobs.py",
        "                if is_new and not entry.is_read(now, incarnation, self._limits.hold):\n",
        "                if False:\n",
        f"{_UNIT}/dispatcher/test_state.py",
    ),
    Guard(
        "facts of another run are merged",
        "dispatcher/state.py",
        "        if not entry.is_of_run(beat):\n",
        "        if False:\n",
        f"{_UNIT}/dispatcher/test_state.py",
    ),
    Guard(
        "a run gets rows of an earlier one",
        "worker/streams/dataset_usage.py",
        '"name", "run", "warnings"',
        '"name", "run", "first_run", "warnings"',
        f"{_CHANGES}::test_a_run_reads_files_that_were_replaced_after_the_run_before",
    ),
    Guard(
        "a contradiction is only in the log",
        "dispatcher/state.py",
        "            response.contradiction = conflicts[0]\n            return conflicts\n",
        "            entry.contradicted.clear()\n            return conflicts\n",
        f"{_UNIT}/dispatcher/test_state.py",
    ),
    Guard(
        "epochs begin after a contradiction",
        "sidecar/delivery/epoch_run.py",
        "        self._exchange.check_run()\n",
        "",
        f"{_CHANGES}::"
        "test_contradicting_rows_end_the_run_of_every_trainer_and_the_next_run_begins_anew",
    ),
    Guard(
        "a failed step counts as consumed",
        "trainer/epoch_state.py",
        "return self.units + (-part % replicas if self.ended else -part)",
        "return self.units",
        "tests/integration/delivery/test_retries.py",
    ),
    Guard(
        "the digest loses the top bits of several words",
        "rows/digest.py",
        "    return _mix_bits(total) + _weighted_sum(matrix >> _HALF, _HIGH_WEIGHTS[:words])\n",
        "    return total\n",
        f"{_UNIT}/rows/test_digest.py",
    ),
    Guard(
        "reports of a wait fill the socket",
        "trainer/progress.py",
        "        self._wait_gap *= 2",
        "        pass",
        f"{_UNIT}/trainer/test_progress.py",
    ),
    Guard(
        "a failure goes to the iterator that received it",
        "trainer/consumer.py",
        "            if self._epoch is not None:\n"
        "                self._epoch.error = without_traceback(error)\n",
        "            pass\n",
        f"{_UNIT}/trainer/test_consumer.py",
    ),
    Guard(
        "batches are read-only for functions that write in place",
        "link/trainer/slots.py",
        "mmap.PROT_READ | mmap.PROT_WRITE",
        "mmap.PROT_READ",
        "tests/integration/trainer/test_zero_copy.py",
    ),
    Guard(
        "a stuck split keeps its permit",
        "worker/compute/lending.py",
        "    return max(lent, stuck)",
        "    return lent",
        f"{_UNIT}/worker/compute/test_lending.py",
    ),
    Guard(
        "splits that are opened ahead delay those that are read",
        "worker/compute/task_queue.py",
        "heapq.heappush(heap, (order, next",
        "heapq.heappush(heap, ((0, 0), next",
        f"{_UNIT}/worker/compute/test_task_queue.py",
    ),
    Guard(
        "the streams of one job delay those of another",
        "worker/compute/task_queue.py",
        "self._readers.setdefault(reader, [])",
        'self._readers.setdefault(("", 0), [])',
        f"{_UNIT}/worker/compute/test_task_queue.py",
    ),
    Guard(
        "a job waits for a split that another job reads later",
        "worker/streams/shared_producers.py",
        "                    self._pool.add_need(producer.task, need)",
        "                    pass",
        f"{_UNIT}/worker/streams/test_shared_producers.py",
    ),
    Guard(
        "a stream that has more rows than one message is forgotten",
        "link/blocks/sender.py",
        "                again.append(stream)\n",
        "                pass\n",
        f"{_UNIT}/link/blocks/test_sender.py",
    ),
    Guard(
        "a worker sends more than a sidecar has room for",
        "link/blocks/sender.py",
        "stream.stage.next(stream.credit - stream.taken)",
        "stream.stage.next(BLOCK_BYTES)",
        f"{_UNIT}/link/blocks/test_sender.py",
    ),
    Guard(
        "permits are lent that bring no rows",
        "worker/compute/lending.py",
        "0 < rate < _GAIN * self.rate",
        "False",
        f"{_UNIT}/worker/compute/test_lending.py",
    ),
    Guard(
        "a sidecar does not send when it reads a split",
        "sidecar/streams/split_stream.py",
        "            ordinal=self.ordinal,\n",
        "",
        f"{_UNIT}/sidecar/streams/test_split_stream.py",
    ),
    Guard(
        "a fork takes batches of its parent",
        "trainer/open_consumers.py",
        "os.register_at_fork(after_in_child=_disown_all)\n",
        "",
        f"{_UNIT}/trainer/test_open_consumers.py",
    ),
    Guard(
        "a missing unit is not noticed",
        "trainer/batch_queue.py",
        "        if index != self._units:\n",
        "        if False:\n",
        f"{_UNIT}/trainer/test_batch_queue.py",
    ),
    Guard(
        "a full volume ends the sidecar with SIGBUS",
        "sidecar/delivery/slot_pool.py",
        "            os.posix_fallocate(fd, 0, size)\n",
        "            os.ftruncate(fd, size)\n",
        f"{_UNIT}/sidecar/delivery/test_slot_pool.py",
    ),
    Guard(
        "a closed job keeps its memory and threads",
        "sidecar/inputs/session.py",
        "            self._registry.release(self._reading.input)\n",
        "            pass\n",
        "tests/integration/delivery/test_jobs.py",
    ),
    Guard(
        "after a restore, a position counts the units of another number of trainers",
        "sidecar/delivery/epoch_run.py",
        "        if self._is_cut_anew:\n",
        "        if False:\n",
        f"{_UNIT}/sidecar/delivery/test_epoch_run.py",
    ),
    Guard(
        "the end of a partition opened at its last row is no fact",
        "sidecar/steps/epoch_reader.py",
        "                reader.pass_ended_splits()\n",
        "                pass\n",
        f"{_UNIT}/sidecar/steps/test_epoch_reader.py",
    ),
)
