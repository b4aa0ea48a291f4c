"""Autoscaling follows a dataset that becomes four times slower during the training."""

from __future__ import annotations

import pytest

from testing.e2e.training import Training
from testing.operator.processes import eventually

pytestmark = pytest.mark.timeout(900)  # the pods train, possibly on a slow machine

_STEP = 0.2
_ROWS = 480  # 30 steps of 16 rows: the trainers consume 80 rows/s, so an epoch takes 6 s
_ROW_SECONDS = 0.01  # a worker produces 100 rows/s, or 25 in slow epochs
_SLOW = (3, 13)
_SETTLED = 4  # number of last slow epochs in which the workers have adapted
_STALL = 0.05


def test_workers_follow_a_dataset_that_becomes_slower(kubectl, node_cluster, measured):
    training = Training(kubectl, node_cluster.images["worker"], _ROWS, _ROW_SECONDS, _SLOW, _STEP)
    autoscaling = {"minReplicas": 1, "maxReplicas": 6, "stabilizationWindowSeconds": 10}
    training.start(autoscaling=autoscaling)
    training.wait_for_epochs(_SLOW[0])
    initial = len(training.workers())
    training.wait_for_epochs(_SLOW[1], 400)
    slow = len(training.workers())
    # One or two, as at the start: 80 rows/s need 0.8 workers, and measurements are not exact.
    eventually(lambda: len(training.workers()) <= 2, 180)
    training.wait_for_more_epochs()
    last = len(training.workers())
    trainers = training.verify_epochs()
    stalls = [max(one.stall_ratio for one in parts) for parts in zip(*trainers, strict=False)]
    percent = " ".join(f"{100 * stall_ratio:.0f}" for stall_ratio in stalls)
    measured(f"four times slower: {initial}, {slow}, {last} workers; stall % by epoch: {percent}")
    assert initial <= 2
    assert slow >= 4
    for trainer in trainers:
        settled = trainer[_SLOW[1] - _SETTLED : _SLOW[1]]
        assert sum(one.stall_ratio for one in settled) < _STALL * _SETTLED
    assert training.finish()
