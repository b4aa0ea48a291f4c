"""Every mistake gets one line: the file's line, the field as written, what is wrong, the remedy."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.load import ResourceError, loads
from tests.unit.distributed_input.api.resource.manifests import HEAD, manifest

# What stands under `spec:`, which is line 4 | where the error is | words of the error.
SPECS = [
    (
        "wrokers: {replicas: 2}",
        "5: spec.wrokers",
        "unknown field 'wrokers': did you mean 'workers'?",
    ),
    ("wrokers:", "5: spec.wrokers", "did you mean 'workers'?"),
    ("num_splits: 3", "5: spec.num_splits", "did you mean 'numSplits'?"),
    ("minReplicas: 2", "5: spec.minReplicas", "belongs at spec.workers.autoscaling.minReplicas"),
    ("source: {path: .}", "5: spec.source", "belongs at spec.dataset.source"),
    ("colour: red", "5: spec.colour", "the fields here are dataset, processingMode"),
    ("- 1", "4: spec", "a mapping with the fields dataset, "),
    ("workers:\n  replicas: two", "6: spec.workers.replicas", "a whole number from 0 to 1000"),
    ("workers: {replicas: '2'}", "5: spec.workers.replicas", 'the text "2": take the quotes away'),
    ("workers: {replicas: 1.5}", "5: spec.workers.replicas", "whole number from 0 to 1000"),
    ("workers: {replicas: true}", "5: spec.workers.replicas", "not true"),
    (
        "workers: {replicas: 1001}",
        "5: spec.workers.replicas",
        "from 0 to 1000, such as 2, not 1001",
    ),
    ("workers: {replicas: -1}", "5: spec.workers.replicas", "from 0 to 1000"),
    (
        "workers: {autoscaling: {maxReplicas: 3}}\ntfDataService:\n  staticSharding: true",
        "7: spec.tfDataService.staticSharding",
        "needs a number of workers that stays: take workers.autoscaling away",
    ),
    (
        "tfDataService: {port: 7070}",
        "5: spec.tfDataService.port",
        "7070 is taken in the dispatcher's pod",
    ),
    ("workers: 3", "5: spec.workers", "fields replicas, autoscaling, parallelism, "),
    ("workers: {parallelism: 0}", "5: spec.workers.parallelism", "from 1 to 1024"),
    (
        "workers:\n  autoscaling:\n    maxReplicas: 3\n    minReplicas: 5",
        "8: spec.workers.autoscaling.minReplicas",
        "5 is more than maxReplicas 3: lower minReplicas or raise maxReplicas",
    ),
    (
        "workers:\n  autoscaling: {minReplicas: 2}",
        "6: spec.workers.autoscaling.maxReplicas",
        "is missing: it takes a whole number from 1 to 1000, such as 8",
    ),
    ("dataset: {entryPoint: digits}", "5: spec.dataset.entryPoint", "such as 'digits:dataset_fn'"),
    ("dataset: {entryPoint: a.b.fn}", "5: spec.dataset.entryPoint", "did you mean a.b:fn?"),
    ("dataset: {entryPoint: 'a:'}", "5: spec.dataset.entryPoint", "no function after a ':'"),
    ("dataset: {entryPoint: 'a/b.py:f'}", "5: spec.dataset.entryPoint", "names a file"),
    ("dataset: {entryPoint: 'a.py:f'}", "5: spec.dataset.entryPoint", "names a file"),
    ("dataset: {entryPoint: 'a:b:c'}", "5: spec.dataset.entryPoint", "package.module:function"),
    ("dataset: {entryPoint: 'a-b:c'}", "5: spec.dataset.entryPoint", "package.module:function"),
    ("dataset: {entryPoint: 'a.class:c'}", "5: spec.dataset.entryPoint", "package.module:function"),
    ("dataset: {entryPoint: 'a:c\n\n  '}", "5: spec.dataset.entryPoint", "package.module:function"),
    ("dataset: {entryPoint: 3}", "5: spec.dataset.entryPoint", "not 3: put it in quotes"),
    (
        "dataset: {entryPoint: 'a:b', fromTrainer: true}",
        "5: spec.dataset.fromTrainer",
        "excludes entryPoint: keep one of them",
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
        "takes true, not false",
    ),
    (
        "dataset: {entryPoint: 'a:b', source: {path: ''}}",
        "5: spec.dataset.source.path",
        "not empty",
    ),
    (
        "dataset: {entryPoint: 'a:b', source: {configMap: A_B}}",
        "5: spec.dataset.source.configMap",
        "such as 'digits-code'",
    ),
    (
        "dataset:\n  entryPoint: a:b\n  args:\n    x: 1\n    y-z: 1",
        "9: spec.dataset.args.y-z",
        "cannot be the name of a function's argument",
    ),
    ("dataset: {entryPoint: 'a:b', args: {x: .nan}}", "5: spec.dataset.args.x", "finite numbers"),
    ("dataset: {entryPoint: 'a:b', args: {x: [!!binary AA==]}}", "5: spec.dataset.args.x", "JSON"),
    ("dataset: {entryPoint: 'a:b', args: [1]}", "5: spec.dataset.args", "mapping of names"),
    (
        "dataset: {entryPoint: 'a:b', args: {x: {1: 2}}}",
        "5",
        "the key 1 is no text: put it in quot",
    ),
    ("processingMode: static", "5: spec.processingMode", "distributed_epoch, parallel_epochs"),
    ("numSplits: 65537", "5: spec.numSplits", "from 1 to 65536"),
    ("numSplits: 0", "5: spec.numSplits", "from 1 to 65536"),
    ("partitions: 1025", "5: spec.partitions", "from 1 to 1024"),
    ("partitions: 0", "5: spec.partitions", "from 1 to 1024"),
    (
        "partitions: 5\nbatching: {globalBatchSize: 12}",
        "5: spec.partitions",
        "5 does not divide batching.globalBatchSize 12: use one of 1, 2, 3, 4, 6, 12, or",
    ),
    (
        "partitions: 24\nbatching: {globalBatchSize: 12}",
        "5: spec.partitions",
        "give up the order with `order: any`",
    ),
    ("seed: -1", "5: spec.seed", "of at least 0"),
    ("epochs: 0", "5: spec.epochs", "of at least 1"),
    ("batching: {globalBatchSize: 0}", "5: spec.batching.globalBatchSize", "such as 256, not 0"),
    ("batching: {remainder: cut}", "5: spec.batching.remainder", "one of keep, drop, pad, not"),
    ("order: strickt", "5: spec.order", "one of strict, any, not"),
    ("determinism: no", "5: spec.determinism", "one of strict, warn, relaxed, not false"),
    (
        "sidecar:\n  buffer: 256Mi\n  resources:\n    limits: {memory: 300Mi}",
        "8: spec.sidecar.resources.limits.memory",
        "no room for buffer 256Mi and the process: set it to 384Mi or more",
    ),
    ("dispatcher: {port: 70000}", "5: spec.dispatcher.port", "from 1 to 65535, such as 7070"),
    ("sidecar: {buffer: 256MB}", "5: spec.sidecar.buffer", "write 256Mi"),
    ("sidecar: {buffer: much}", "5: spec.sidecar.buffer", "such as 256Mi"),
    ("sidecar: {buffer: 1Ki}", "5: spec.sidecar.buffer", "use 1Mi to 1Ti"),
    ("sidecar: {buffer: 2Ti}", "5: spec.sidecar.buffer", "use 1Mi to 1Ti"),
    ("sidecar: {buffer: true}", "5: spec.sidecar.buffer", "such as '256Mi'"),
    ("sidecar: {readAhead: 9}", "5: spec.sidecar.readAhead", "from 0 to 8"),
    ("sidecar: {timeoutSeconds: 0}", "5: spec.sidecar.timeoutSeconds", "from 1 to 86400"),
    ("seed: 1\nseed: 2", "6: spec.seed", "written twice, first on line 5: remove one"),
    ("a: &a [*a]", "5", "an anchor (&) contains itself"),
    ("a: [1", "5", "is not YAML: "),
    ("a: b\n\tc: d", "6", "is not YAML: "),
    ("a: !!python/name:os.system x", "5", "is not YAML: "),
]


@pytest.mark.parametrize(("spec", "place", "words"), SPECS, ids=[row[0] for row in SPECS])
def test_a_wrong_spec_is_named_with_its_line_and_its_remedy(spec: str, place: str, words: str):
    with pytest.raises(ResourceError) as caught:
        loads(manifest(spec), "input.yaml")
    (line,) = caught.value.problems
    assert line.startswith(f"input.yaml:{place}: ")
    assert words in line


OTHERS = [
    ("", "input.yaml: ", "add a document with `kind: DistributedInput`"),
    ("kind: Job", "input.yaml: ", "has no DistributedInput"),
    ("- 1", "input.yaml:1: ", "a mapping with the fields apiVersion, kind, metadata, spec"),
    (HEAD + "sepc: {}", "input.yaml:4: sepc: ", "did you mean 'spec'?"),
    (
        HEAD.replace("v1alpha1", "v1"),
        "input.yaml:1: apiVersion: ",
        "distributed-input.dev/v1alpha1",
    ),
    (
        HEAD.replace("ut.dev", "uts.dev"),
        "input.yaml:1: apiVersion: ",
        "distributed-input.dev/v1alpha1",
    ),
    (HEAD.replace("kind: DistributedInput\n", ""), "input.yaml:1: kind: ", "is missing"),
    (
        HEAD.replace("DistributedInput", "Pipeline"),
        "input.yaml:2: kind: ",
        'takes "DistributedInput"',
    ),
    (HEAD.replace("dInput", "dInputs"), "input.yaml:2: kind: ", 'takes "DistributedInput", not'),
    (HEAD.replace("digits", "Digits"), "input.yaml:3: metadata.name: ", "lower-case letters"),
    (HEAD.replace("digits", "3d"), "input.yaml:3: metadata.name: ", "starting with a letter"),
    (
        HEAD.replace("digits", "a-"),
        "input.yaml:3: metadata.name: ",
        "ending with a letter or digit",
    ),
    (HEAD.replace("digits", "x" * 53), "input.yaml:3: metadata.name: ", "at most 52"),
    (HEAD.replace("digits", "7"), "input.yaml:3: metadata.name: ", "put it in quotes"),
    (HEAD.replace("name: digits", ""), "input.yaml:3: metadata.name: ", "is missing"),
    (HEAD.replace("{", "{lables: {}, "), "input.yaml:3: metadata.lables: ", "mean 'labels'?"),
    (
        HEAD.replace("{", "{labels: {a: 1}, "),
        "input.yaml:3: metadata.labels.a: ",
        "put it in quotes",
    ),
    (HEAD.replace("{", "{namespace: a.b, "), "input.yaml:3: metadata.namespace: ", "no namespace"),
    (f"{HEAD}---\n{HEAD}", "input.yaml:7: metadata.name: ", "'digits' is there already"),
    (f"{HEAD}---\n{HEAD.replace('digits', 'eval')}", "input.yaml: ", "(digits, eval), not one"),
]


@pytest.mark.parametrize(("text", "start", "words"), OTHERS, ids=[repr(row[0]) for row in OTHERS])
def test_a_wrong_document_is_named_with_its_line_and_its_remedy(text: str, start: str, words: str):
    with pytest.raises(ResourceError) as caught:
        loads(text, "input.yaml")
    (line,) = caught.value.problems
    assert line.startswith(start)
    assert words in line


def test_all_mistakes_come_at_once():
    with pytest.raises(ResourceError) as caught:
        loads(manifest("seed: x\nordre: any\nworkers: {replicas: -1}"), "input.yaml")
    message = str(caught.value)
    assert message.splitlines() == list(caught.value.problems)
    assert {line.split(": ")[1] for line in caught.value.problems} == {
        "spec.seed",
        "spec.ordre",
        "spec.workers.replicas",
    }


def test_an_error_never_shows_a_long_value_whole():
    with pytest.raises(ResourceError) as caught:
        loads(manifest(f"seed: {'x' * 5000}"))
    assert len(str(caught.value)) < 200
