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
        {},
    ],
)
def test_a_spec_of_another_shape_counts_as_nothing(spec):
    assert requested_amount(spec) == (1, 0, 0)
