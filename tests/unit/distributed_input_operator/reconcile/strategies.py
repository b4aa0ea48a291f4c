"""Hypothesis strategies of specs and measurements."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from distributed_input_operator.autoscaling.rates import Measurement
from tests.unit.distributed_input_operator.objects.builders import from_config_map


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


numbers = optional(replicas=st.integers(0, 9)) | st.builds(
    lambda low, more: {"autoscaling": {"minReplicas": low, "maxReplicas": low + more}},
    st.integers(1, 9),
    st.integers(0, 9),
)
containers = st.fixed_dictionaries(
    {"name": st.just("worker")},
    optional={
        "env": st.just([{"name": "BUCKET", "value": ""}]),
        "resources": st.sampled_from(
            [{"requests": {"cpu": "1000m"}}, {"limits": {"memory": "2Gi"}}]
        ),
    },
)
pods = st.builds(
    lambda containers, more: {"spec": {"containers": containers, **more}},
    st.lists(containers, max_size=1),
    st.sampled_from([{}, {"hostNetwork": False, "dnsPolicy": "Default"}]),
)
workers = st.builds(
    lambda number, others: {**number, **others},
    numbers,
    optional(
        local=st.just({"cpus": 4, "memory": "2Gi"}),
        accelerator=st.sampled_from(
            [
                {"resourceName": "nvidia.com/gpu"},
                {"resourceName": "google.com/tpu", "count": 2, "nodeSelector": {"tpu": "v5"}},
            ]
        ),
        placement=st.sampled_from(["Anywhere", "NearTrainers", "Dedicated"]),
        spot=st.booleans(),
        template=pods,
    ),
).filter(lambda one: not {"local", "accelerator"} <= one.keys())
specs = optional(
    suspend=st.booleans(),
    workers=workers,
    dispatcher=optional(port=st.integers(1, 1023)),
    tfDataService=optional(
        port=st.integers(7071, 9000),  # 7070 and 9090 are in use
        journal=st.just({"persistentVolumeClaim": {"claimName": "journal"}}),
        crossTrainerCache=st.just("1Gi"),
    ),
    dataset=st.sampled_from(
        [
            {"type": "Trainer"},
            {"type": "EntryPoint", "entryPoint": {"function": "a:b"}},
            from_config_map("code"),
        ]
    ),
)
measurements = st.none() | st.builds(
    Measurement,
    consumers=st.integers(0, 9),
    demand=st.none() | st.floats(0, 1e6),
    busy_rate=st.none() | st.floats(0.1, 1e4),
    useful_workers=st.integers(0, 20),
    local_rate=st.floats(0, 1e6),
    local_workers=st.integers(0, 9),
)
