"""Law: a resource written as YAML and read again is the same resource."""

from __future__ import annotations

import keyword
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.resource.input import API_VERSION, KIND
from distributed_input.api.resource.load import data_plane_config, loads

Fields = dict[str, Any]


class _Quoting(yaml.SafeDumper):
    """Puts all text in quotes: PyYAML takes '0E0' for text, and Kubernetes for a number."""


_Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def written(value: Fields) -> str:
    """As YAML."""
    return yaml.dump(value, Dumper=_Quoting)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Fields]:
    """A mapping with any subset of these fields."""
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
    st.just({}),
    st.builds(lambda name: {"configMap": name}, names),
    st.builds(lambda name: {"path": f"/code/{name}"}, names),
    st.just({"image": True}),
)
datasets = st.one_of(
    some(fromTrainer=st.just(True)),
    st.fixed_dictionaries(
        {"entryPoint": entry_points},
        optional={
            "args": st.dictionaries(identifiers, json_values, max_size=3),
            "source": sources,
            "fromTrainer": st.just(False),
        },
    ),
)
# P x k: a batch that the partitions divide.
batches = st.builds(
    lambda partitions, rows, remainder: {
        "partitions": partitions,
        "batching": {"globalBatchSize": partitions * rows, "remainder": remainder},
    },
    st.integers(1, 1024),
    st.integers(1, 1024),
    st.sampled_from(["keep", "drop", "pad"]),
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
        processingMode=st.sampled_from(["distributed_epoch", "parallel_epochs"]),
        numSplits=st.integers(1, 65536),
        seed=st.integers(0, 2**63 - 1),
        epochs=st.integers(1, 2**63 - 1),
        order=st.sampled_from(["strict", "any"]),
        determinism=st.sampled_from(["strict", "warn", "relaxed"]),
        workers=some(
            replicas=st.integers(0, 1000), autoscaling=scaling, parallelism=st.integers(1, 1024)
        ),
        dispatcher=some(port=st.integers(1, 65535)),
        sidecar=some(
            buffer=buffers, readAhead=st.integers(0, 8), timeoutSeconds=st.integers(1, 86400)
        ),
    ),
    st.just({}) | batches,
)
metadata = st.fixed_dictionaries(
    {"name": names}, optional={"labels": st.dictionaries(names, texts, max_size=2)}
)


@given(metadata=metadata, spec=specs)
def test_yaml_to_model_to_yaml_keeps_everything(metadata: Fields, spec: Fields):
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    resource = loads(written(manifest))
    full = resource.model_dump(by_alias=True)
    short = resource.model_dump(by_alias=True, exclude_unset=True)
    assert loads(written(full)) == resource
    assert loads(written(short)) == resource
    assert {**short, "spec": short["spec"]} == {
        **manifest,
        "spec": {**spec, **_buffer_as_text(spec)},
    }
    assert data_plane_config(loads(written(full))) == data_plane_config(resource)


def _buffer_as_text(spec: Fields) -> Fields:
    sidecar = spec.get("sidecar", {})
    if "buffer" not in sidecar:
        return {}
    return {"sidecar": {**sidecar, "buffer": str(sidecar["buffer"])}}
