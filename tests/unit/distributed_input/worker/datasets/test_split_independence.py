"""Splits shuffle and mix rows as well as the same pipeline in one process."""

from __future__ import annotations

import pytest

from testing.bench.shuffles import PIPELINES, alone, in_splits, share_deviation, windows

ROWS, SPLITS = 3000, 8
BINOMIAL = (1 / 3 * 2 / 3 / 64) ** 0.5  # of the share of a third in 64 independent rows


@pytest.mark.parametrize("name", PIPELINES)
def test_splits_mix_rows_as_one_process_does(name: str) -> None:
    split, whole = in_splits(PIPELINES[name], ROWS, SPLITS), alone(PIPELINES[name], ROWS)
    assert windows(split) > 0.9 * windows(whole)
    assert share_deviation(split) < 1.35 * max(share_deviation(whole), BINOMIAL)
