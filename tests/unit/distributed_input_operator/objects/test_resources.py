"""CPU and memory of containers."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.sections.pods import ResourceRequirements
from distributed_input_operator.objects.resources import container_resources, cpus

DEFAULTS = {"cpu": "250m", "memory": "512Mi"}


def test_defaults_apply_to_resources_without_request_and_limit():
    given = ResourceRequirements(requests={"cpu": "2"}, limits={"memory": "1Gi"})
    assert container_resources(given, DEFAULTS) == {
        "requests": {"cpu": "2"},
        "limits": {"memory": "1Gi"},
    }
    assert container_resources(ResourceRequirements(), DEFAULTS) == {"requests": DEFAULTS}


def test_devices_have_equal_requests_and_limits():
    found = container_resources(ResourceRequirements(), {}, {"nvidia.com/gpu": "2"})
    assert found["requests"] == found["limits"] == {"nvidia.com/gpu": "2"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, 1),
        ({"requests": {"cpu": "100m"}}, 1),
        ({"requests": {"cpu": "2500m"}, "limits": {"cpu": "8"}}, 3),
        ({"requests": {"memory": "1Gi"}, "limits": {"cpu": "8"}}, 8),
    ],
)
def test_cpus_are_the_request_or_else_the_limit_rounded_up(resources, expected):
    assert cpus(resources) == expected
