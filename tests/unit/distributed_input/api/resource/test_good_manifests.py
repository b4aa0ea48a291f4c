"""What a manifest means: the common case, the defaults, and what the data plane gets."""

from __future__ import annotations

import json
import textwrap

import pytest

from distributed_input.api.resource.load import data_plane_config, loads, loads_all
from tests.unit.distributed_input.api.resource.manifests import HEAD, manifest

COMMON = textwrap.dedent(
    """\
    apiVersion: distributed-input.dev/v1alpha1
    kind: DistributedInput
    metadata: {name: digits}
    spec:
      dataset: {entryPoint: "digits:dataset_fn", args: {folder: data}}
      workers: {replicas: 2}
    """
)

DEFAULTS = {
    "dataset": {"entryPoint": None, "args": {}, "source": {"image": True}, "fromTrainer": True},
    "processingMode": "distributed_epoch",
    "numSplits": None,
    "partitions": None,
    "seed": 0,
    "epochs": None,
    "batching": {"globalBatchSize": None, "remainder": "keep"},
    "order": "strict",
    "determinism": "warn",
    "sidecar": {"bufferBytes": 256 * 2**20, "readAhead": 1, "timeoutSeconds": 600},
}


def test_the_common_case_takes_at_most_eight_lines():
    assert len(COMMON.splitlines()) <= 8
    spec = loads(COMMON).spec
    assert spec.dataset.entry_point == "digits:dataset_fn"
    assert spec.dataset.args == {"folder": "data"}
    assert spec.workers.replicas == 2


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        manifest("{}"),
        manifest("dataset: {}"),
        manifest("dataset: {fromTrainer: true}"),
        manifest("dataset:\nworkers:\nseed:\nsidecar: {buffer: }"),
    ],
    ids=["no spec", "empty spec", "empty dataset", "said", "nulls"],
)
def test_what_is_left_out_gets_the_default(text: str):
    assert data_plane_config(loads(text)) == DEFAULTS


def test_every_field_that_the_data_plane_reads_reaches_it():
    text = manifest(
        """\
        dataset: {entryPoint: "a.b:c", args: {x: [1, {y: null}]}, source: {configMap: code}}
        processingMode: parallel_epochs
        numSplits: 12
        partitions: 4
        seed: 9223372036854775807
        epochs: 3
        batching: {globalBatchSize: 64, remainder: pad}
        order: any
        determinism: relaxed
        workers: {replicas: 3, autoscaling: {minReplicas: 2, maxReplicas: 9}, parallelism: 4}
        dispatcher: {port: 7070}
        sidecar: {buffer: 1.5Gi, readAhead: 0, timeoutSeconds: 30}
        """
    )
    config = data_plane_config(loads(text))
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
        "order": "any",
        "determinism": "relaxed",
        "sidecar": {"bufferBytes": 3 * 2**29, "readAhead": 0, "timeoutSeconds": 30},
    }
    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize(
    "spec",
    [
        "partitions: 5",
        "partitions: 6\nbatching: {globalBatchSize: 12}",
        "partitions: 5\nbatching: {globalBatchSize: 12}\norder: any",
        "workers: {autoscaling: {minReplicas: 3, maxReplicas: 3}}",
        "workers: {replicas: 0}",
        "dataset: {entryPoint: 'a:b', fromTrainer: false, source: {image: true}}",
    ],
)
def test_the_edge_of_a_rule_is_inside(spec: str):
    loads(manifest(spec))


def test_an_object_as_the_cluster_has_it_is_read_too():
    text = """\
        apiVersion: distributed-input.dev/v1alpha1
        kind: DistributedInput
        metadata:
          name: digits
          namespace: team-a
          uid: 0d2f
          generation: 4
          resourceVersion: "17"
          creationTimestamp: 2025-01-01T00:00:00Z
          managedFields: [{manager: kubectl}]
        status: {conditions: [{type: Ready}]}
        """
    metadata = loads(textwrap.dedent(text)).metadata
    assert (metadata.name, metadata.namespace) == ("digits", "team-a")
    assert (metadata.uid, metadata.generation) == ("0d2f", 4)


def test_documents_of_other_kinds_are_passed_over():
    text = f"kind: ConfigMap\n---\n{manifest(name='eval')}---\n{COMMON}---\n"
    assert [resource.metadata.name for resource in loads_all(text)] == ["eval", "digits"]


def test_the_same_name_may_stand_in_two_namespaces():
    one = HEAD.replace("{", "{namespace: a, ")
    assert len(loads_all(f"{one}---\n{HEAD}")) == 2
