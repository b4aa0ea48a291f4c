"""Hypothesis strategies of specs and measurements."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from distributed_input_operator.autoscaling.rates import Measurement


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


workers = optional(
    replicas=st.integers(0, 9),
    autoscaling=st.builds(
        lambda low, more: {"minReplicas": low, "maxReplicas": low + more},
        st.integers(1, 9),
        st.integers(0, 9),
    ),
    local=st.just({"cpus": 4, "memory": "2Gi"}),
    accelerator=st.sampled_from(
        [
            {"type": "nvidia"},
            {"type": "gke-nvidia", "product": "nvidia-l4", "count": 2},
            {"type": "gke-tpu", "product": "tpu-v5-lite-podslice", "topology": "2x2"},
        ]
    ),
    placement=st.sampled_from(["anywhere", "near-trainers", "dedicated"]),
    spot=st.booleans(),
    env=st.just([{"name": "BUCKET", "value": ""}]),
    resources=st.sampled_from([{"requests": {"cpu": "1000m"}}, {"limits": {"memory": "2Gi"}}]),
    podTemplate=st.sampled_from([{}, {"spec": {"hostNetwork": False, "dnsPolicy": "Default"}}]),
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
        [{}, {"entryPoint": "a:b"}, {"entryPoint": "a:b", "source": {"configMap": "code"}}]
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
