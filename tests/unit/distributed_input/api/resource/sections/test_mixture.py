"""Validation of the section `mixture`."""

from __future__ import annotations

import pytest

from distributed_input.api.config import InputConfig, MixtureConfig, SourceLimitsConfig
from distributed_input.api.resource.input import input_config
from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

FUNCTION = "dataset: {type: EntryPoint, entryPoint: {function: 'a:b'}}\n"
MIXTURE = FUNCTION + "mixture: {weights: {a: 1, b: 2}%s}"
SCHEDULE = MIXTURE % ", schedule: [%s]"
CHANGES = "6: spec.mixture.schedule"
CHANGE = "6: spec.mixture.schedule[%d].%s"
EXCLUDE = "%sbadRecords: {exclude: [{step: parse, index: 7%s}]}"
LIMITS = "%sbadRecords: {sources: {%s}}"
INVALID = [
    ("mixture: {weights: {a: 1}}", "5: spec.mixture", "needs dataset.type EntryPoint"),
    (FUNCTION + "mixture: {}", "6: spec.mixture.weights", "is missing"),
    (FUNCTION + "mixture: {weights: {}}", "6: spec.mixture.weights", "has no source"),
    (FUNCTION + "mixture: {weights: {a: 0}}", "6: spec.mixture.weights", "set one of them above 0"),
    (FUNCTION + "mixture: {weights: {a: -1}}", "6: spec.mixture.weights.a", "a number from 0"),
    (FUNCTION + "mixture: {weights: {a b: 1}}", "6: spec.mixture.weights", "name of a source"),
    (MIXTURE % ", onExhausted: End", "6: spec.mixture.onExhausted", "Repeat, Stop, Drop"),
    (SCHEDULE % "{step: 0, weights: {a: 1, b: 1}}", CHANGE % (0, "step"), "at least 1"),
    (SCHEDULE % "{step: 2, weights: {a: 1}}", CHANGES, "use the same names"),
    (SCHEDULE % "{step: 2, weights: {a: 0, b: 0}}", CHANGE % (0, "weights"), "above 0"),
    (
        SCHEDULE % "{step: 2, weights: {a: 1, b: 1}}, {step: 2, weights: {a: 1, b: 2}}",
        CHANGES,
        "sort the changes",
    ),
    (
        MIXTURE % "" + "\nprocessingMode: ParallelEpochs",
        "7: spec.processingMode",
        "use DistributedEpoch",
    ),
    (LIMITS % (FUNCTION, "a: {}"), "6: spec.badRecords.sources", "'a' is not a source"),
    (
        LIMITS % (MIXTURE % "" + "\n", "a: {maxPercent: 0}"),
        "7: spec.badRecords.sources.a.maxPercent",
        "from 1 to 100",
    ),
    (EXCLUDE % (FUNCTION, ", source: a"), "6: spec.badRecords.exclude", "'a' is not a source"),
    (EXCLUDE % (MIXTURE % "" + "\n", ", source: c"), "7: spec.badRecords.exclude", "'c' is not"),
    (
        MIXTURE % "" + "\nbatching: {remainder: Pad}",
        "7: spec.batching.remainder",
        "only whole batches",
    ),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID)
def test_an_invalid_mixture_gets_a_message(spec: str, place: str, message: str) -> None:
    check_spec_problem(spec, place, message)


def test_the_configuration_has_the_excluded_records() -> None:
    fields = ", source: b, file: /a, split: 0"
    config = input_config(parse(manifest(EXCLUDE % (MIXTURE % "" + "\n", fields))))
    (record,) = config.bad_records.exclude
    expected = {"source": "b", "step": "parse", "index": 7, "file": "/a", "split": 0}
    assert record == {**expected, "epoch": None}
    assert InputConfig.from_json(config.to_json()) == config


def test_the_configuration_has_the_limits_of_sources() -> None:
    config = input_config(parse(manifest(LIMITS % (MIXTURE % "" + "\n", "b: {maxPercent: 3}"))))
    assert config.bad_records.sources == {"b": SourceLimitsConfig(max_percent=3)}
    assert InputConfig.from_json(config.to_json()) == config


def test_the_configuration_of_a_mixture_is_that_of_the_resource() -> None:
    config = input_config(parse(manifest(SCHEDULE % "{step: 2, weights: {a: 1, b: 0.5}}")))
    assert config.mixture == MixtureConfig(
        {"a": 1, "b": 2}, "repeat", ({"step": 2, "weights": {"a": 1, "b": 0.5}},)
    )
    assert InputConfig.from_json(config.to_json()) == config
    assert "mixture" not in input_config(parse(manifest(FUNCTION))).to_json()
