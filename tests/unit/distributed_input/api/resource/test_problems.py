"""Messages about invalid resources: one line per problem, with line, field and remedy."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.parse import parse
from distributed_input.api.resource.problems import ResourceError, dotted
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

# The text under `spec:`, which is line 4 | line and field of the problem | a part of the message.
INVALID = [
    (
        "wrokers: {replicas: 2}",
        "5: spec.wrokers",
        "unknown field 'wrokers': did you mean 'workers'?",
    ),
    ("wrokers:", "5: spec.wrokers", "did you mean 'workers'?"),
    ("num_splits: 3", "5: spec.num_splits", "did you mean 'numSplits'?"),
    ("minReplicas: 2", "5: spec.minReplicas", "move it to spec.workers.autoscaling.minReplicas"),
    ("source: {path: .}", "5: spec.source", "move it to spec.dataset.entryPoint.source"),
    ("colour: red", "5: spec.colour", "the valid fields are dataset, processingMode"),
    ("- 1", "4: spec", "must be a mapping with the fields dataset, "),
    ("workers: {replicas: '2'}", "5: spec.workers.replicas", 'the text "2": remove the quotes'),
    (
        "dataset: {type: EntryPoint, entryPoint: {function: 3}}",
        "5: spec.dataset.entryPoint.function",
        "not 3: put it in quotes",
    ),
    (
        "workers: {env: 1}",
        "5: spec.workers.env",
        "move it to spec.workers.template.spec.containers[0].env",
    ),
    ("dispatcher: {tolerations: 1}", "5: spec.dispatcher.tolerations", "a list of mappings, not 1"),
    ("suspend: 1", "5: spec.suspend", "must be true or false, not 1"),
    ("seed: -1", "5: spec.seed", "an integer of at least 0"),
    ("determinism: strickt", "5: spec.determinism", "must be one of Strict, Warn, Relaxed, not"),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_a_problem_has_line_field_and_remedy(spec: str, place: str, message: str):
    check_spec_problem(spec, place, message)


def test_all_problems_are_reported_together():
    with pytest.raises(ResourceError) as caught:
        parse(manifest("seed: x\nordre: any\nworkers: {replicas: -1}"), "input.yaml")
    message = str(caught.value)
    assert message.splitlines() == list(caught.value.problems)
    assert {line.split(": ")[1] for line in caught.value.problems} == {
        "spec.seed",
        "spec.ordre",
        "spec.workers.replicas",
    }


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(ResourceError) as caught:
        parse(manifest(f"seed: {'x' * 5000}"))
    assert len(str(caught.value)) < 200


def test_a_path_is_written_with_dots_and_indices():
    assert dotted(("spec", "env", 0, "name")) == "spec.env[0].name"
