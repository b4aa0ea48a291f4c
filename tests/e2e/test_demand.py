"""A dataset becomes four times slower under a training: workers come, and go when they can."""

from __future__ import annotations

import pytest

from testing.e2e.training import Training

pytestmark = pytest.mark.timeout(900)  # of pods that train, on whatever machine

_STEP = 0.2
_ROWS = 480  # 30 steps of 16: the trainers want 80 rows a second, and have an epoch in 6 s
_ROW_SECONDS = 0.01  # so a worker makes 100 a second, and 25 where it is slow
_SLOW = (3, 13)
_SETTLED = 4  # of the slow epochs, the last
_STALL = 0.05


def test_workers_follow_a_dataset_that_becomes_slower(kubectl, whole_cluster, measured):
    training = Training(kubectl, whole_cluster.images["worker"], _ROWS, _ROW_SECONDS, _SLOW, _STEP)
    range_ = {"minReplicas": 1, "maxReplicas": 6, "stabilizationWindowSeconds": 10}
    training.start(autoscaling=range_)
    training.reads(_SLOW[0])
    before = len(training.workers())
    training.reads(_SLOW[1], 400)
    slow = len(training.workers())
    training.workers_ready(before, 180)
    training.goes_on()
    trainers = training.exact()
    stalls = [max(one.stall for one in parts) for parts in zip(*trainers, strict=False)]
    said = " ".join(f"{100 * stall:.0f}" for stall in stalls)
    measured(f"four times slower: {before}, {slow}, {before} workers; stall % by epoch: {said}")
    assert before <= 2
    assert slow >= 4
    for trainer in trainers:
        settled = trainer[_SLOW[1] - _SETTLED : _SLOW[1]]
        assert sum(one.stall for one in settled) < _STALL * _SETTLED
    assert training.finish()
