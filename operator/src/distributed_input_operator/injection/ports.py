"""The ports of the containers that injection adds.

On the network of the host, the API server reserves the ports that a container declares on the node.
Trainers of one node therefore need different ports. They come from a range below the port ranges of
NodePorts and of outgoing connections. The trainers of one owner never have the same ports. Those of
different owners seldom do, and then the scheduler chooses different nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from distributed_input.api import names
from distributed_input_operator.injection.owners import Owners
from distributed_input_operator.injection.trainer_pod import (
    Manifest,
    TrainerRank,
    controller,
    field_text,
)
from distributed_input_operator.objects.children import digest

HOST_PORTS = range(20_000, 30_000)
"""Ports of containers on the network of the host."""


def free_ports(
    pod: Manifest, added: Sequence[str], rank: TrainerRank, owners: Owners = ()
) -> list[int]:
    """Return a port for each added container that no other container of the pod declares.

    The result is the same if the pod has the added containers already.
    """
    used = {
        port.get("containerPort")
        for part in ("containers", "initContainers")
        for container in pod["spec"].get(part) or ()
        if container["name"] not in added
        for port in container.get("ports") or ()
    }
    ports = range(names.METRICS_PORT, 1 << 16)
    start = 0
    if pod["spec"].get("hostNetwork"):
        ports = HOST_PORTS
        start = (_place(pod, owners) + _index(pod, rank) * len(added)) % len(ports)
    free = (port for port in (*ports[start:], *ports[:start]) if port not in used)
    return list(itertools.islice(free, len(added)))


def _place(pod: Manifest, owners: Owners) -> int:
    """Return a number that differs between owners of pods."""
    if owner := controller(pod):
        return int(digest(owner["uid"]), 16)
    of = owners[0] if owners else pod  # A template has no name.
    meta = of.get("metadata") or {}
    name = meta.get("name") or meta.get("generateName", "")
    return int(digest([of.get("kind"), meta.get("namespace"), name]), 16)


def _index(pod: Manifest, rank: TrainerRank) -> int:
    """Return the trainer's index. It is 0 in a template, whose pods get theirs later."""
    text = rank.index.get("value", "")
    if reference := rank.index.get("valueFrom"):
        text = field_text(pod, reference.get("fieldRef", {}).get("fieldPath", "")) or ""
    return int(text) if text.isdecimal() else 0
