"""Packed rows in a balanced order are those of an order in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from distributed_input.graph.sequence_packing import pack
from testing import packing
from tests.unit.distributed_input.graph.packcases import METHODS, dataset_of, lists, rows_of


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("window", "rows"), [(1, 1), (17, 1), (17, 3), (41, 8), (7, 20)])
def test_a_balanced_order_is_that_of_the_reference(method: str, window: int, rows: int) -> None:
    given = rows_of(500, 32)
    parts = packing.pack(given, 32, method, 5)
    assert len(parts) % window or window == 1  # the last window is short
    packed = pack(dataset_of(given), 32, method, 5, balance_window=window, rows_per_step=rows)
    balanced = packing.balance(parts, window, rows)
    assert sorted(balanced, key=str) == sorted(parts, key=str)
    assert lists(packed) == [packing.columns(one, 32) for one in balanced]
    assert lists(pack(dataset_of([[]]), 8, balance_window=window, rows_per_step=rows)) == []


@pytest.mark.parametrize(("rows", "most"), [(1, 1.3), (8, 1.1)])
def test_the_ranks_of_a_step_have_about_the_same_cost(rows: int, most: float) -> None:
    numbers = np.random.default_rng(0)

    def ranks(window: int) -> float:
        """Return the mean over steps of the largest cost of 16 ranks, in means."""
        splits = []
        for sizes in numbers.lognormal(np.log(400), 1.0, (16, 900)).clip(1, 2048).astype(int):
            parts = packing.pack([range(one) for one in sizes], 2048, "best_fit", 8)
            splits.append(list(map(packing.cost, packing.balance(parts, window, rows))))
        steps = min(map(len, splits)) // rows
        costs = np.array([one[: steps * rows] for one in splits]).reshape(16, steps, rows).sum(2)
        return float(costs.max(0).sum() / costs.mean(0).sum())

    assert ranks(256) < most < ranks(1) - 0.2
