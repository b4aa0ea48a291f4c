"""Definitions of metrics."""

from __future__ import annotations

import re

import pytest

from distributed_input.runtime import metrics


def test_names_are_unique_and_follow_the_conventions():
    found = metrics.definitions()
    assert len({definition.name for definition in found}) == len(found)
    for definition in found:
        assert re.fullmatch(
            r"distributed_input_(worker|sidecar|dispatcher)_[a-z_]+", definition.name
        )
        assert definition.name.endswith("_total") == (definition.kind == "counter")
        assert definition.help.endswith(".")


def test_a_sample_needs_exactly_its_labels():
    with pytest.raises(ValueError, match="has the labels"):
        metrics.sample(metrics.SIDECAR_ROWS, 1.0)
    with pytest.raises(ValueError, match="has the labels"):
        metrics.sample(metrics.WORKER_ROWS, 1.0, input="train")
