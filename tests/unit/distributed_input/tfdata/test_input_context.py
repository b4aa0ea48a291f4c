"""The input context divides the global batch, and records what the dataset depends on."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.tfdata.input_context import SplitInputContext


def test_the_context_divides_the_global_batch() -> None:
    ctx = SplitInputContext(4, 3, lambda rows: min(rows, 8))
    assert (ctx.num_input_pipelines, ctx.input_pipeline_id, ctx.num_replicas_in_sync) == (4, 3, 1)
    assert ctx.get_per_replica_batch_size(16) == 2
    assert ctx.get_per_replica_batch_size(16) == 2
    assert ctx.global_batch_size == 16
    assert (ctx.seed, ctx.epoch) == (0, 0)
    with pytest.raises(ConfigError, match="16 and 8"):
        ctx.get_per_replica_batch_size(8)
    with pytest.raises(ConfigError, match=r"10 is not divisible by the 4 .*\[1, 2, 5, 10\]"):
        SplitInputContext(1, 0, 4).get_per_replica_batch_size(10)
    with pytest.raises(ValueError, match="must be 1 or more"):
        SplitInputContext(1, 0, 4).get_per_replica_batch_size(0)


def test_a_dataset_that_reads_the_seed_or_the_epoch_may_vary() -> None:
    context = SplitInputContext(4, 1, 2, seed=5, epoch=3)
    assert not context.varies
    assert context.epoch == 3
    assert context.varies
    context = SplitInputContext(4, 1, 2, seed=5, epoch=3)
    assert context.seed == 5
    assert context.varies


def test_a_context_is_an_input_pipeline_of_one_replica() -> None:
    context = SplitInputContext(4, 1, 2)
    assert (context.num_input_pipelines, context.input_pipeline_id) == (4, 1)
    assert context.num_replicas_in_sync == 1
