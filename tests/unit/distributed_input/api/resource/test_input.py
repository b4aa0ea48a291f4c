"""The model of DistributedInput: its JSON schema, rules over several sections, and a round trip."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput, input_config
from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import HEAD, check_spec_problem, manifest

Fields = dict[str, Any]


class _Quoting(yaml.SafeDumper):
    """A dumper that quotes all text: '0E0' is text for PyYAML, but a number for Kubernetes."""


_Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def to_yaml(value: Fields) -> str:
    return yaml.dump(value, Dumper=_Quoting)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Fields]:
    """Return a strategy for mappings with any subset of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


identifiers = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda word: not keyword.iskeyword(word)
)
names = st.from_regex(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
entry_points = st.builds(
    lambda module, function: f"{'.'.join(module)}:{function}",
    st.lists(identifiers, min_size=1, max_size=3),
    identifiers,
)
sources = st.one_of(
    st.builds(lambda name: {"type": "ConfigMap", "configMap": {"name": name}}, names),
    st.builds(lambda name: {"type": "Path", "path": f"/code/{name}"}, names),
    st.just({"type": "Image"}),
)
datasets = st.one_of(
    st.just({"type": "Trainer"}),
    st.fixed_dictionaries(
        {
            "type": st.just("EntryPoint"),
            "entryPoint": st.fixed_dictionaries(
                {"function": entry_points},
                optional={
                    "args": st.dictionaries(identifiers, json_values, max_size=3),
                    "source": sources,
                },
            ),
        }
    ),
)
# Global batch sizes are multiples of the number of partitions.
batches = st.builds(
    lambda partitions, rows, remainder: {
        "partitions": partitions,
        "batching": {"globalBatchSize": partitions * rows, "remainder": remainder},
    },
    st.integers(1, 1024),
    st.integers(1, 1024),
    st.sampled_from(["Keep", "Drop", "Pad"]),
)
scaling = st.tuples(st.integers(1, 1000), st.integers(1, 1000)).map(
    lambda bounds: {"minReplicas": min(bounds), "maxReplicas": max(bounds)}
)
buffers = st.one_of(
    st.integers(2**20, 2**40),
    st.builds(
        lambda size, unit: f"{size}{unit}",
        st.integers(2, 900),
        st.sampled_from(["Mi", "Gi", "M", "G"]),
    ),
)
specs = st.builds(
    lambda spec, batch: {**spec, **batch},
    some(
        dataset=datasets,
        processingMode=st.sampled_from(["DistributedEpoch", "ParallelEpochs"]),
        numSplits=st.integers(1, 65536),
        seed=st.integers(0, 2**63 - 1),
        epochs=st.integers(1, 2**63 - 1),
        determinism=st.sampled_from(["Strict", "Warn", "Relaxed"]),
        workers=some(replicas=st.integers(0, 1000), parallelism=st.integers(1, 1024))
        | some(autoscaling=scaling),
        dispatcher=some(port=st.integers(1, 65535)),
        sidecar=some(
            buffer=buffers,
            readAhead=st.integers(0, 8),
            timeoutSeconds=st.integers(1, 86400),
            transfer=st.sampled_from(["Auto", "GRPC"]),
        ),
    ),
    st.just({}) | batches,
)
metadata = st.fixed_dictionaries(
    {"name": names}, optional={"labels": st.dictionaries(names, texts, max_size=2)}
)


@pytest.mark.slow
@given(metadata=metadata, spec=specs)
def test_a_resource_written_as_yaml_and_parsed_again_is_equal(metadata: Fields, spec: Fields):
    whole = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    resource = parse(to_yaml(whole))
    full = resource.model_dump(by_alias=True)
    short = resource.model_dump(by_alias=True, exclude_unset=True)
    assert parse(to_yaml(full)) == resource
    assert parse(to_yaml(short)) == resource
    assert {**short, "spec": short["spec"]} == {
        **whole,
        "spec": {**spec, **_buffer_as_text(spec)},
    }
    assert input_config(parse(to_yaml(full))).to_json() == input_config(resource).to_json()


def _buffer_as_text(spec: Fields) -> Fields:
    sidecar = spec.get("sidecar", {})
    if "buffer" not in sidecar:
        return {}
    return {"sidecar": {**sidecar, "buffer": str(sidecar["buffer"])}}


def schema_fields() -> Iterator[tuple[str, dict[str, Any]]]:
    schema = DistributedInput.model_json_schema()
    for name, part in {"DistributedInput": schema, **schema["$defs"]}.items():
        for field, definition in part["properties"].items():
            yield f"{name}.{field}", definition


def test_every_field_is_camel_case_and_described():
    without_description = {"DistributedInput.apiVersion", "DistributedInput.kind"}
    for name, field in schema_fields():
        assert re.fullmatch(r"\w+\.[a-z][a-zA-Z]*", name)
        assert name in without_description or field.get("description") or "$ref" in field, name


def test_only_parts_of_the_pod_template_accept_unknown_fields():
    schema = DistributedInput.model_json_schema()
    parts = {"DistributedInput": schema, **schema["$defs"]}
    assert {name for name, part in parts.items() if part["additionalProperties"] is not False} == {
        *("ContainerResources", "TemplateContainer", "TemplatePodSpec")
    }


def test_few_fields_are_required():
    schema = DistributedInput.model_json_schema()
    required = {name: part.get("required", []) for name, part in schema["$defs"].items()}
    assert {name: fields for name, fields in required.items() if fields} == {
        "ObjectMeta": ["name"],
        "AcceleratorSpec": ["resourceName"],
        "AutoscalingSpec": ["maxReplicas"],
        "CodeLocation": ["type"],
        "ConfigMapCode": ["name"],
        "DatasetSpec": ["type"],
        "EntryPointDataset": ["function"],
        "ExcludedRecord": ["step", "index"],
        "LocalWorkerSpec": ["cpus", "memory"],
        "MixtureSpec": ["weights"],
        "PackingSpec": ["length"],
        "TemplateContainer": ["name"],
        "WeightsChange": ["step", "weights"],
    }


def test_a_resource_is_immutable():
    resource = parse(manifest("seed: 1"))
    for value, field in ((resource, "spec"), (resource.spec, "seed"), (resource.metadata, "name")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(value, field, None)


INVALID = [
    ("processingMode: static", "5: spec.processingMode", "DistributedEpoch, ParallelEpochs"),
    ("numSplits: 65537", "5: spec.numSplits", "from 1 to 65536"),
    ("numSplits: 0", "5: spec.numSplits", "from 1 to 65536"),
    ("partitions: 1025", "5: spec.partitions", "from 1 to 1024"),
    ("partitions: 0", "5: spec.partitions", "from 1 to 1024"),
    (
        "partitions: 5\nbatching: {globalBatchSize: 12}",
        "5: spec.partitions",
        "5 does not divide batching.globalBatchSize 12: use one of 1, 2, 3, 4, 6, 12",
    ),
    (
        "partitions: 24\nbatching: {globalBatchSize: 12}",
        "5: spec.partitions",
        "24 does not divide batching.globalBatchSize 12: use one of 1, 2, 3, 4, 6, 12",
    ),
    ("seed: -1", "5: spec.seed", "of at least 0"),
    ("epochs: 0", "5: spec.epochs", "of at least 1"),
    ("networkPolicy: true", "5: spec.networkPolicy", "one of Restricted, Open, not true"),
    ("trainers: {weight: 0.5}", "5: spec.trainers.weight", "must be text, for example '500m'"),
    ("trainers: {weight: 2k}", "5: spec.trainers.weight", "use 1m to 1000"),
    ("managedBy: canary", "5: spec.managedBy", "for example 'distributed-input.dev/canary'"),
    ("workers: {image: x}", "5: spec.workers.image", "unknown field 'image'"),
    (
        "workers: {template: {spec: {containers: [{name: a}, {name: a}]}}}",
        "5: spec.workers.template.spec.containers",
        "two have the name 'a'",
    ),
    ("tfDataService: {}", "5: spec.tfDataService", "set encryption: None"),
    (
        "encryption: None\nnetworkPolicy: Open\ntfDataService: {}",
        "7: spec.tfDataService",
        "set networkPolicy: Restricted",
    ),
    ("determinism: no", "5: spec.determinism", "one of Strict, Warn, Relaxed, not false"),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_spec_gets_a_message_with_line_field_and_remedy(spec, place, message):
    check_spec_problem(spec, place, message)


@pytest.mark.parametrize(
    "spec",
    [
        "partitions: 5",
        "partitions: 6\nbatching: {globalBatchSize: 12}",
        "workers: {autoscaling: {minReplicas: 3, maxReplicas: 3}}",
        "workers: {replicas: 0}",
    ],
)
def test_values_at_the_edge_of_a_rule_are_valid(spec: str):
    parse(manifest(spec))


DEFAULTS = {
    "dataset": {"entryPoint": None, "args": {}, "source": {"image": True}, "fromTrainer": True},
    "processingMode": "distributed_epoch",
    "numSplits": None,
    "partitions": None,
    "seed": 0,
    "epochs": None,
    "batching": {"globalBatchSize": None, "remainder": "keep"},
    "determinism": "warn",
    "sidecar": {
        "readAhead": None,
        "bufferBytes": 256 * 2**20,
        "timeoutSeconds": 600,
        "transfer": "auto",
    },
    "badRecords": {"onError": "fail", "maxPerSplit": 100, "maxPercent": 10},
}


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        manifest("{}"),
        manifest("dataset: {type: Trainer}"),
        manifest("dataset:\nworkers:\nseed:\nsidecar: {buffer: }"),
    ],
    ids=["no spec", "empty spec", "explicit default", "nulls"],
)
def test_missing_and_null_fields_have_their_defaults(text: str):
    assert input_config(parse(text)).to_json() == DEFAULTS


def test_the_configuration_has_every_field_that_the_data_plane_reads():
    text = manifest(
        """\
        dataset:
          type: EntryPoint
          entryPoint:
            function: "a.b:c"
            args: {x: [1, {y: null}]}
            source: {type: ConfigMap, configMap: {name: code}}
        processingMode: ParallelEpochs
        numSplits: 12
        partitions: 4
        seed: 9223372036854775807
        epochs: 3
        batching: {globalBatchSize: 64, remainder: Pad}
        determinism: Relaxed
        badRecords: {onError: Skip, maxPerSplit: 7, maxPercent: 1}
        workers: {autoscaling: {minReplicas: 2, maxReplicas: 9}, parallelism: 4}
        dispatcher: {port: 7070}
        sidecar: {buffer: 1.5Gi, readAhead: 0, timeoutSeconds: 30, transfer: GRPC}
        """
    )
    config = input_config(parse(text)).to_json()
    assert config == {
        "dataset": {
            "entryPoint": "a.b:c",
            "args": {"x": [1, {"y": None}]},
            "source": {"configMap": "code"},
            "fromTrainer": False,
        },
        "processingMode": "parallel_epochs",
        "numSplits": 12,
        "partitions": 4,
        "seed": 2**63 - 1,
        "epochs": 3,
        "batching": {"globalBatchSize": 64, "remainder": "pad"},
        "determinism": "relaxed",
        "sidecar": {
            "bufferBytes": 3 * 2**29,
            "readAhead": 0,
            "timeoutSeconds": 30,
            "transfer": "grpc",
        },
        "badRecords": {"onError": "skip", "maxPerSplit": 7, "maxPercent": 1},
    }
    assert json.loads(json.dumps(config)) == config
