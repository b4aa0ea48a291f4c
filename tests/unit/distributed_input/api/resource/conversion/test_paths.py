"""Problems of v1alpha1, with the names of fields in the user's file."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.conversion.paths import as_written
from distributed_input.api.resource.problems import Problem

PLACES = [
    ("spec.partitions", "spec.partitions"),
    ("spec.dataset.entryPoint", "spec.dataset.entryPoint.function"),
    ("spec.dataset.source.path", "spec.dataset.entryPoint.source.path"),
    ("spec.operatorClass", "spec.managedBy"),
    ("spec.workers.image", "spec.workers.template.spec.containers"),
    ("spec.workers.tolerations", "spec.workers.template.spec.tolerations"),
]


@pytest.mark.parametrize(("alpha", "beta"), PLACES)
def test_a_problem_names_the_field_of_the_file(alpha: str, beta: str) -> None:
    found = [Problem(tuple(alpha.split(".")), "is wrong")]
    document = {"apiVersion": "distributed-input.dev/v1beta1"}
    assert [str(one) for one in as_written(found, document)] == [f"{beta}: is wrong"]
    old = {"apiVersion": "distributed-input.dev/v1alpha1"}
    assert [str(one) for one in as_written(found, old)] == [f"{alpha}: is wrong"]
