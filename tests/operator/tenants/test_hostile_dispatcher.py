"""A dispatcher with an image of its user sends anything: only its own input is affected."""

from __future__ import annotations

from typing import Any

import pytest

from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.processes import eventually, manifest
from testing.operator.resource_usage import memory_mib
from testing.operator.webhooks import free_port
from testing.tenants.hostile_dispatcher import ENTRIES, hostile_dispatcher

_MAX_GROWTH_MIB = 64
_LONG = 150.0


@pytest.mark.timeout(600)
def test_a_status_with_100000_workers_affects_only_its_input(cluster, operator, tmp_path):
    ports = {name: free_port() for name in ("good", "bad")}
    for name, port in ports.items():
        cluster.create(manifest(name, dispatcher={"port": port}))

    def live(name: str) -> dict[str, Any]:
        cluster.run_pods(name)
        return cluster.get("DistributedInput", name)["status"].get("trainers", {})

    with run_dispatcher(ports["good"], token_of(cluster, "good"), tmp_path):
        eventually(lambda: live("good").get("reading") == 1, _LONG)
        before = memory_mib(operator.process.pid, "VmHWM")
        with hostile_dispatcher(ports["bad"]) as calls:
            eventually(lambda: not live("bad") and calls() >= 2, _LONG)
            found = eventually(lambda: cluster.condition("bad", "Unmeasured"))
        growth = memory_mib(operator.process.pid, "VmHWM") - before
        print(f"operator: {before} MiB, {growth} MiB more after {ENTRIES} workers in one status")
        assert (found["status"], found["reason"]) == ("True", "StatusUnusable")
        assert "more than 10000 workers" in found["message"]
        assert growth < _MAX_GROWTH_MIB
        # The input works as before, and the operator carries out changes of its spec.
        cluster.patch("DistributedInput", "bad", {"spec": {"workers": {"replicas": 2}}})
        eventually(lambda: len(cluster.pods("bad")) == 2)
        assert live("good")["reading"] == 1
        assert not cluster.condition("good", "Unmeasured")
    assert operator.process.poll() is None
    for name in ports:
        cluster.delete("DistributedInput", name)
