"""Validation of the sections `dataset` and `batching`."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

INVALID = [
    (
        "dataset: {entryPoint: digits}",
        "5: spec.dataset.entryPoint",
        "for example 'digits:dataset_fn'",
    ),
    ("dataset: {entryPoint: a.b.fn}", "5: spec.dataset.entryPoint", "did you mean a.b:fn?"),
    ("dataset: {entryPoint: 'a:'}", "5: spec.dataset.entryPoint", "has no function after ':'"),
    ("dataset: {entryPoint: 'a/b.py:f'}", "5: spec.dataset.entryPoint", "is a file"),
    ("dataset: {entryPoint: 'a.py:f'}", "5: spec.dataset.entryPoint", "is a file"),
    ("dataset: {entryPoint: 'a:b:c'}", "5: spec.dataset.entryPoint", "package.module:function"),
    ("dataset: {entryPoint: 'a-b:c'}", "5: spec.dataset.entryPoint", "package.module:function"),
    ("dataset: {entryPoint: 'a.class:c'}", "5: spec.dataset.entryPoint", "package.module:function"),
    ("dataset: {entryPoint: 'a:c\n\n  '}", "5: spec.dataset.entryPoint", "package.module:function"),
    ("dataset: {entryPoint: 3}", "5: spec.dataset.entryPoint", "not 3: put it in quotes"),
    (
        "dataset: {entryPoint: 'a:b', fromTrainer: true}",
        "5: spec.dataset.fromTrainer",
        "true excludes entryPoint: remove one of them",
    ),
    ("dataset: {fromTrainer: false}", "5: spec.dataset.fromTrainer", "add `entryPoint: "),
    ("dataset: {fromTrainer: 1}", "5: spec.dataset.fromTrainer", "true or false, not 1"),
    ("dataset: {args: {a: 1}}", "5: spec.dataset.args", "add `entryPoint: "),
    ("dataset: {source: {path: .}}", "5: spec.dataset.source", "add `entryPoint: "),
    (
        "dataset: {entryPoint: 'a:b', source: {path: x, configMap: y}}",
        "5: spec.dataset.source",
        "configMap and path exclude each other: keep one of them",
    ),
    (
        "dataset: {entryPoint: 'a:b', source: {image: false}}",
        "5: spec.dataset.source.image",
        "must be true, not false",
    ),
    (
        "dataset: {entryPoint: 'a:b', source: {path: ''}}",
        "5: spec.dataset.source.path",
        "must be non-empty text",
    ),
    (
        "dataset: {entryPoint: 'a:b', source: {configMap: A_B}}",
        "5: spec.dataset.source.configMap",
        "for example 'digits-code'",
    ),
    (
        "dataset:\n  entryPoint: a:b\n  args:\n    x: 1\n    y-z: 1",
        "9: spec.dataset.args.y-z",
        "is not a valid argument name",
    ),
    ("dataset: {entryPoint: 'a:b', args: {x: .nan}}", "5: spec.dataset.args.x", "finite numbers"),
    ("dataset: {entryPoint: 'a:b', args: {x: [!!binary AA==]}}", "5: spec.dataset.args.x", "JSON"),
    ("dataset: {entryPoint: 'a:b', args: [1]}", "5: spec.dataset.args", "mapping of names"),
    (
        "dataset: {entryPoint: 'a:b', args: {x: {1: 2}}}",
        "5",
        "the key 1 is not text: put it in quotes",
    ),
    (
        "batching: {globalBatchSize: 0}",
        "5: spec.batching.globalBatchSize",
        "for example 256, not 0",
    ),
    ("batching: {remainder: cut}", "5: spec.batching.remainder", "one of keep, drop, pad, not"),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_section_gets_a_message_with_line_field_and_remedy(spec, place, message):
    check_spec_problem(spec, place, message)


def test_an_entry_point_from_the_image_is_valid_without_a_dataset_from_the_trainer():
    text = "dataset: {entryPoint: 'a:b', fromTrainer: false, source: {image: true}}"
    assert not parse(manifest(text)).spec.dataset.traced
    assert parse(manifest()).spec.dataset.traced
