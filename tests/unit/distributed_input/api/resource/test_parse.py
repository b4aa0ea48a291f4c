"""Parsing of manifests: documents, names, and messages about invalid documents."""

from __future__ import annotations

import textwrap

import pytest

from distributed_input.api.resource.parse import parse, parse_all
from distributed_input.api.resource.problems import Problem, ResourceError
from tests.unit.distributed_input.api.resource.manifests import (
    HEAD,
    check_problem,
    check_spec_problem,
    manifest,
)

EXAMPLE = textwrap.dedent(
    """\
    apiVersion: distributed-input.dev/v1beta1
    kind: DistributedInput
    metadata: {name: digits}
    spec:
      dataset: {type: EntryPoint, entryPoint: {function: "digits:dataset_fn", args: {folder: data}}}
      workers: {replicas: 2}
    """
)


def test_the_common_case_takes_at_most_eight_lines():
    assert len(EXAMPLE.splitlines()) <= 8
    spec = parse(EXAMPLE).spec
    assert spec.dataset.entry_point is not None
    assert spec.dataset.entry_point.function == "digits:dataset_fn"
    assert spec.dataset.entry_point.args == {"folder": "data"}
    assert spec.workers.replicas == 2


def test_an_object_from_the_cluster_can_be_parsed():
    text = """\
        apiVersion: distributed-input.dev/v1beta1
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
    metadata = parse(textwrap.dedent(text)).metadata
    assert (metadata.name, metadata.namespace) == ("digits", "team-a")
    assert (metadata.uid, metadata.generation) == ("0d2f", 4)


def test_documents_of_other_kinds_are_ignored():
    text = f"kind: ConfigMap\n---\n{manifest(name='eval')}---\n{EXAMPLE}---\n"
    assert [resource.metadata.name for resource in parse_all(text)] == ["eval", "digits"]


def test_two_namespaces_may_use_the_same_name():
    one = HEAD.replace("{", "{namespace: a, ")
    assert len(parse_all(f"{one}---\n{HEAD}")) == 2


def test_a_relative_source_path_is_joined_to_the_folder_only_if_there_is_one():
    source = "{type: Path, path: a/../b}"
    text = manifest(
        f"dataset: {{type: EntryPoint, entryPoint: {{function: 'a:b', source: {source}}}}}"
    )
    assert parse(text).spec.dataset.path == "a/../b"
    (resource,) = parse_all(text, folder="/inputs")
    assert resource.spec.dataset.path == "/inputs/b"


def test_the_problems_of_a_further_check_are_reported_with_their_lines():
    with pytest.raises(ResourceError, match=r"^input.yaml:5: spec.seed: too small\n") as caught:
        parse_all(
            f"{manifest('seed: 1')}\n---\n{manifest(name='eval')}",
            "input.yaml",
            check=lambda _: [Problem(("spec", "seed"), "too small")],
        )
    assert len(caught.value.problems) == 2


INVALID = [
    ("", "input.yaml: ", "add a document with `kind: DistributedInput`"),
    ("kind: Job", "input.yaml: ", "has no DistributedInput"),
    ("- 1", "input.yaml:1: ", "a mapping with the fields apiVersion, kind, metadata, spec"),
    (HEAD + "sepc: {}", "input.yaml:4: sepc: ", "did you mean 'spec'?"),
    (
        HEAD.replace("v1beta1", "v1"),
        "input.yaml:1: apiVersion: ",
        "'distributed-input.dev/v1' is unknown: use distributed-input.dev/v1beta1",
    ),
    (
        HEAD.replace("apiVersion: distributed-input.dev/v1beta1", "spec: {}"),
        "input.yaml:1: apiVersion: ",
        "is missing: set it to distributed-input.dev/v1beta1",
    ),
    (
        HEAD.replace("ut.dev", "uts.dev"),
        "input.yaml:1: apiVersion: ",
        "distributed-input.dev/v1beta1",
    ),
    (HEAD.replace("kind: DistributedInput\n", ""), "input.yaml:1: kind: ", "is missing"),
    (
        HEAD.replace("DistributedInput", "Pipeline"),
        "input.yaml:2: kind: ",
        'must be "DistributedInput"',
    ),
    (HEAD.replace("dInput", "dInputs"), "input.yaml:2: kind: ", 'must be "DistributedInput", not'),
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
    (
        HEAD.replace("{", "{namespace: a.b, "),
        "input.yaml:3: metadata.namespace: ",
        "not a valid namespace",
    ),
    (f"{HEAD}---\n{HEAD}", "input.yaml:7: metadata.name: ", "'digits' is already used"),
    (
        f"{HEAD}---\n{HEAD.replace('digits', 'eval')}",
        "input.yaml: ",
        "(digits, eval): keep exactly one",
    ),
]


@pytest.mark.parametrize(
    ("text", "start", "message"), INVALID, ids=[repr(row[0]) for row in INVALID]
)
def test_an_invalid_document_gets_a_message_with_line_and_remedy(
    text: str, start: str, message: str
):
    check_problem(text, start, message)


@pytest.mark.parametrize(
    ("spec", "line", "message"),
    [
        ("seed: 1\nseed: 2", "6: spec.seed", "occurs twice, first on line 5: remove one"),
        ("a: &a [*a]", "5", "an anchor (&) contains itself"),
        ("a: [1", "5", "is not YAML: "),
        ("a: b\n\tc: d", "6", "is not YAML: "),
        ("a: !!python/name:os.system x", "5", "is not YAML: "),
    ],
)
def test_invalid_yaml_gets_a_message_with_its_line(spec: str, line: str, message: str):
    check_spec_problem(spec, line, message)
