"""What one pod requests: any JSON is accepted, and counted as the scheduler counts."""

from __future__ import annotations

import pytest

from distributed_input_operator.budget.pod_requests import requested_amount

GIB = 1 << 30


def container(cpu=0, **fields):
    return {"resources": {"requests": {"cpu": cpu}}, **fields}


def test_the_requests_of_all_containers_count():
    side = {"name": "side", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}
    spec = {"containers": [side, {"name": "plain"}, side]}
    assert requested_amount(spec) == (1, 2000, 2 * GIB)


def test_a_limit_without_a_request_counts_as_the_request():
    limited = {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 4, "memory": "1Gi"}}}
    assert requested_amount({"containers": [limited]}) == (1, 500, GIB)


def test_init_containers_count_as_the_scheduler_counts_them():
    def cpu(*init, own=1):
        return requested_amount({"containers": [container(own)], "initContainers": list(init)})[1]

    sidecar = container(2, restartPolicy="Always")
    assert cpu(container(4)) == 4000, "it runs before the others"
    assert cpu(sidecar) == 3000, "it runs beside the others"
    assert cpu(sidecar, container(4)) == 6000
    assert cpu(container(4), sidecar, own=3) == 5000


def test_the_requests_of_a_pod_as_a_whole_replace_those_of_its_containers():
    spec = {"containers": [container("250m")], "resources": {"requests": {"cpu": 64}}}
    assert requested_amount(spec) == (1, 64_000, 0)
    limits = {"resources": {"limits": {"cpu": 8, "memory": "1Gi"}}}
    # The API server uses the pod's limit as its request only if no container has one.
    assert requested_amount({"containers": [container(2)], **limits}) == (1, 2000, GIB)
    devices = {"resources": {"requests": {"nvidia.com/gpu": 8, "hugepages-2Mi": "4Mi"}}}
    assert requested_amount(devices, ["nvidia.com/gpu", "hugepages-2Mi"])[3:] == (0, 4 << 20)


def test_the_overhead_of_the_runtime_class_is_added():
    overhead = {"cpu": "250m", "memory": "1Gi"}
    spec = {"containers": [container(1)], "overhead": overhead}
    assert requested_amount(spec) == (1, 1250, GIB)
    whole = {**spec, "resources": {"requests": {"cpu": 4}}}
    assert requested_amount(whole) == (1, 4250, GIB)


@pytest.mark.parametrize(
    ("memory", "counted"),
    [
        ("1e9", 10**9),
        ("+2Gi", 2 << 30),
        ("lots", 0),
        ("NaN", 0),
        ("Infinity", 0),
        ("-5", 0),
        (True, 0),
        ("1e999999999", 1 << 62),
        (1.5e9, 1.5e9),
    ],
)
def test_a_quantity_in_any_notation_counts_and_an_unreadable_one_counts_as_nothing(memory, counted):
    side = {"resources": {"requests": {"memory": memory}}}
    assert requested_amount({"containers": [side]})[2] == counted


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"resources": ["cpu"]}]},
        {"containers": [{"resources": {"requests": "all"}}]},
        {"containers": "none", "initContainers": {}},
        {"resources": "all", "overhead": ["cpu"]},
        {},
    ],
)
def test_a_spec_of_another_shape_counts_as_nothing(spec):
    assert requested_amount(spec) == (1, 0, 0)
