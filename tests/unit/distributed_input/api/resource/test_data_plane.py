"""The configuration of the data plane."""

from __future__ import annotations

import json

import pytest

from distributed_input.api.resource.data_plane import data_plane_config
from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import HEAD, manifest

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
    "sidecar": {
        "readAhead": None,
        "bufferBytes": 256 * 2**20,
        "timeoutSeconds": 600,
        "transfer": "auto",
    },
}


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        manifest("{}"),
        manifest("dataset: {}"),
        manifest("dataset: {fromTrainer: true}"),
        manifest("dataset:\nworkers:\nseed:\nsidecar: {buffer: }"),
    ],
    ids=["no spec", "empty spec", "empty dataset", "explicit default", "nulls"],
)
def test_missing_and_null_fields_have_their_defaults(text: str):
    assert data_plane_config(parse(text)) == DEFAULTS


def test_the_configuration_has_every_field_that_the_data_plane_reads():
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
        sidecar: {buffer: 1.5Gi, readAhead: 0, timeoutSeconds: 30, transfer: grpc}
        """
    )
    config = data_plane_config(parse(text))
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
        "sidecar": {
            "bufferBytes": 3 * 2**29,
            "readAhead": 0,
            "timeoutSeconds": 30,
            "transfer": "grpc",
        },
    }
    assert json.loads(json.dumps(config)) == config
