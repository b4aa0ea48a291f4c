"""Validation of the sections `dataset`, `batching` and `packing`."""

from __future__ import annotations

import pytest

from distributed_input.api.config import InputConfig, PackingConfig
from distributed_input.api.resource.input import input_config
from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

PACKED = "dataset: {type: EntryPoint, entryPoint: {function: 'a:b'}}\npacking: {%s}"
ENTRY = "dataset: {type: EntryPoint, entryPoint: {%s}}"
FUNCTION = "5: spec.dataset.entryPoint.function"
PLACE = "5: spec.dataset.entryPoint.source"
INVALID = [
    ("dataset: {}", "5: spec.dataset.type", "is missing: set it to one of EntryPoint, Trainer"),
    ("dataset: {type: EntryPoint}", "5: spec.dataset.entryPoint", "type EntryPoint needs it"),
    (
        "dataset: {type: Trainer, entryPoint: {function: 'a:b'}}",
        "5: spec.dataset.entryPoint",
        "is only for type EntryPoint: remove it, or set type to EntryPoint",
    ),
    (ENTRY % "function: digits", FUNCTION, "for example 'digits:dataset_fn'"),
    (ENTRY % "function: a.b.fn", FUNCTION, "did you mean a.b:fn?"),
    (ENTRY % "function: 'a:'", FUNCTION, "has no function after ':'"),
    (ENTRY % "function: 'a/b.py:f'", FUNCTION, "is a file"),
    (ENTRY % "function: 'a.py:f'", FUNCTION, "is a file"),
    (ENTRY % "function: 'a:b:c'", FUNCTION, "package.module:function"),
    (ENTRY % "function: 'a-b:c'", FUNCTION, "package.module:function"),
    (ENTRY % "function: 'a.class:c'", FUNCTION, "package.module:function"),
    (ENTRY % "function: 'a:c\n\n  '", FUNCTION, "package.module:function"),
    (ENTRY % "function: 3", FUNCTION, "not 3: put it in quotes"),
    (ENTRY % "function: 'a:b', source: {type: Path}", f"{PLACE}.path", "type Path needs it"),
    (
        ENTRY % "function: 'a:b', source: {type: Path, path: x, configMap: {name: y}}",
        f"{PLACE}.configMap",
        "is only for type ConfigMap: remove it, or set type to ConfigMap",
    ),
    (
        ENTRY % "function: 'a:b', source: {type: Path, path: ''}",
        f"{PLACE}.path",
        "must be non-empty text",
    ),
    (
        ENTRY % "function: 'a:b', source: {type: ConfigMap, configMap: {name: A_B}}",
        f"{PLACE}.configMap.name",
        "for example 'digits-code'",
    ),
    (
        "dataset:\n  type: EntryPoint\n  entryPoint:\n    function: a:b\n    args:\n      y-z: 1",
        "10: spec.dataset.entryPoint.args.y-z",
        "is not a valid argument name",
    ),
    (
        ENTRY % "function: 'a:b', args: {x: .nan}",
        "5: spec.dataset.entryPoint.args.x",
        "finite numbers",
    ),
    (
        ENTRY % "function: 'a:b', args: {x: [!!binary AA==]}",
        "5: spec.dataset.entryPoint.args.x",
        "JSON",
    ),
    (
        ENTRY % "function: 'a:b', args: [1]",
        "5: spec.dataset.entryPoint.args",
        "mapping of names",
    ),
    (
        ENTRY % "function: 'a:b', args: {x: {1: 2}}",
        "5",
        "the key 1 is not text: put it in quotes",
    ),
    (
        "batching: {globalBatchSize: 0}",
        "5: spec.batching.globalBatchSize",
        "for example 256, not 0",
    ),
    ("packing: {length: 8}", "5: spec.packing", "call distributed_input.pack in dataset_fn"),
    (PACKED % "", "6: spec.packing.length", "is missing"),
    (PACKED % "length: 0", "6: spec.packing.length", "for example 2048, not 0"),
    (PACKED % "length: 8, method: best_fit", "6: spec.packing.method", "one of BestFit, FirstFit"),
    (PACKED % "length: 8, openSequences: 0", "6: spec.packing.openSequences", "for example 16"),
    ("batching: {remainder: cut}", "5: spec.batching.remainder", "one of Keep, Drop, Pad, not"),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_section_gets_a_message_with_line_field_and_remedy(spec, place, message):
    check_spec_problem(spec, place, message)


def test_the_configuration_of_a_packing_is_that_of_the_resource():
    fields = "length: 8, method: ConcatenateAndCut, openSequences: 2"
    config = input_config(parse(manifest(PACKED % fields)))
    assert config.packing == PackingConfig(8, "concatenate_and_cut", 2)
    assert InputConfig.from_json(config.to_json()) == config
    assert input_config(parse(manifest(PACKED % "length: 8"))).packing == PackingConfig(8)
    assert "packing" not in input_config(parse(manifest(ENTRY % "function: 'a:b'"))).to_json()


def test_the_code_is_in_one_place():
    text = ENTRY % "function: 'a:b', source: {type: %s}"
    image = parse(manifest(text % "Image")).spec.dataset
    assert (image.path, image.config_map) == (None, None)
    of_map = parse(manifest(text % "ConfigMap, configMap: {name: code}")).spec.dataset
    assert (of_map.path, of_map.config_map) == (None, "code")
    trainer = parse(manifest()).spec.dataset
    assert (trainer.type, trainer.path, trainer.config_map) == ("Trainer", None, None)
