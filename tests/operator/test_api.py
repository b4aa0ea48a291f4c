"""The operator's API client with a real API server."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.kinds import INPUT
from testing.operator.cluster import Cluster


def test_a_list_of_nothing_is_empty(cluster: Cluster, control_plane: Any) -> None:
    """The API server returns null instead of an empty list."""

    async def listed() -> list[Any]:
        await config.load_kube_config(str(control_plane.kubeconfig))
        async with ApiClient() as client:
            empty = f"none-{uuid.uuid4().hex[:8]}"
            return [one async for one in Api(client).objects(INPUT, empty)]

    assert asyncio.run(listed()) == []
