"""An operator with several inputs that trainers read keeps its connections to the dispatchers."""

from __future__ import annotations

from testing.operator.cluster import Cluster
from testing.operator.processes import Operator, eventually, manifest
from testing.operator.readers.dispatchers import run_dispatchers
from testing.operator.webhooks import free_port

_INPUTS = 6


def test_looks_keep_their_connections(cluster: Cluster, operator: Operator):
    port = free_port()
    addresses = {f"read{number}": f"127.3.0.{number + 1}" for number in range(_INPUTS)}
    with run_dispatchers(port) as dispatchers:
        for name in addresses:
            spec = {"workers": {"replicas": 0}, "dispatcher": {"port": port}}
            cluster.create(manifest(name, **spec))
        for name, address in addresses.items():
            eventually(lambda name=name: cluster.pods(name, "dispatcher"))
            cluster.simulate_kubelet(name, "dispatcher", address)

        def all_seen() -> bool:
            """The operator has looked five times at each dispatcher."""
            found = dispatchers.counts()
            return found.inputs == _INPUTS and found.looks >= 5 * _INPUTS

        eventually(all_seen, seconds=180, every=1)
        # The first request only finds out that trainers read. The second opens what is kept.
        assert dispatchers.counts().channels <= 2 * _INPUTS
    for name in addresses:
        live = (cluster.get("DistributedInput", name) or {})["status"]["trainers"]
        assert live["reading"] == 2
