"""The sidecar's configuration: its JSON, its defaults and its errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import config
from distributed_input.api.config import (
    BatchingConfig,
    CodeSource,
    DatasetConfig,
    DeliveryConfig,
    InputConfig,
)
from distributed_input.api.errors import ConfigError
from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput, input_config

COUNTS = st.none() | st.integers(1, 2**31)
NAMES = st.text("abc", min_size=1)
EXCLUDED = {
    "step": "parse",
    "index": 7,
    "file": "/a",
    "source": "books",
    "split": None,
    "epoch": 0,
}
CONFIGS = st.builds(
    InputConfig,
    dataset=st.builds(
        DatasetConfig,
        entry_point=st.none() | NAMES,
        args=st.dictionaries(NAMES, st.integers() | st.lists(st.booleans())),
        source=st.builds(CodeSource, path=NAMES)
        | st.builds(CodeSource, config_map=NAMES)
        | st.just(CodeSource()),
    ),
    processing_mode=st.sampled_from(config.PROCESSING_MODES),
    num_splits=COUNTS,
    partitions=COUNTS,
    seed=st.integers(0, 2**63 - 1),
    epochs=COUNTS,
    batching=st.builds(BatchingConfig, COUNTS, st.sampled_from(config.REMAINDERS)),
    determinism=st.sampled_from(config.DETERMINISMS),
    bad_records=st.builds(
        config.BadRecordsConfig,
        on_error=st.sampled_from(config.ON_ERRORS),
        max_per_split=st.integers(1, 100_000),
        max_percent=st.integers(1, 100),
        sources=st.dictionaries(NAMES, st.builds(config.SourceLimitsConfig, COUNTS, COUNTS)),
        exclude=st.sampled_from([(), (EXCLUDED,), (EXCLUDED, {**EXCLUDED, "split": 3})]),
    ),
    packing=st.just(config.PackingConfig())
    | st.builds(
        config.PackingConfig,
        st.integers(1, 2**24),
        st.sampled_from(config.PACKING_METHODS),
        st.integers(1, 4096),
        st.integers(0, 65536),
    ),
    sidecar=st.builds(
        DeliveryConfig,
        st.none() | st.integers(0, 8),
        st.integers(1, 86400),
        st.integers(1, 2**40),
        st.sampled_from(config.TRANSFERS),
    ),
)


@given(CONFIGS)
def test_reading_what_was_written_gives_the_same_configuration(value: InputConfig) -> None:
    assert InputConfig.from_json(json.loads(json.dumps(value.to_json()))) == value


def test_the_defaults_are_those_of_the_resource() -> None:
    resource = DistributedInput.model_validate(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "any"}}
    )
    assert input_config(resource) == InputConfig()


@pytest.mark.parametrize("value", [{}, {"dataset": None, "seed": None}, {"of_a_later_version": 1}])
def test_missing_and_unknown_fields_are_accepted(value: Any) -> None:
    assert InputConfig.from_json(value) == InputConfig()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"inputs\.train: expected an object"),
        ({"batching": 3}, r"inputs\.train\.batching: expected an object, got 3"),
        ({"seed": "x"}, r"inputs\.train\.seed: expected a whole number"),
        ({"seed": True}, r"inputs\.train\.seed: expected a whole number"),
        ({"dataset": {"entryPoint": 1}}, r"inputs\.train\.dataset\.entryPoint: expected a string"),
        ({"sidecar": {"timeoutSeconds": 0}}, r"sidecar\.timeoutSeconds: expected a number above 0"),
        ({"sidecar": {"transfer": "udp"}}, r"sidecar\.transfer: expected one of auto, grpc"),
        ({"sidecar": {"bufferBytes": -1}}, r"sidecar\.bufferBytes: expected a whole number"),
    ],
)
def test_an_error_names_the_field(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        InputConfig.from_json(value, "inputs.train")
