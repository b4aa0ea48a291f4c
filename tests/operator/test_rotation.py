"""Renewal of the webhook's certificate with a real API server and an injected clock."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from distributed_input.api.names import WEBHOOK_SECRET
from distributed_input_operator.kube.api import Api
from distributed_input_operator.webhook.certificates import (
    RENEW_BEFORE,
    VALIDITY,
    server_context,
)
from distributed_input_operator.webhook.rotation import (
    CertificatePublisher,
    SecretCertificate,
    SharedObjects,
)
from testing.listeners import listening
from testing.operator.cluster import Cluster
from testing.operator.webhooks import CONFIGURATIONS, configuration

NOW = datetime.now(timezone.utc)
DUE = VALIDITY - RENEW_BEFORE + timedelta(hours=1)


@pytest.fixture
def named(cluster: Cluster):
    """Create a webhook configuration in a namespace without certificate. Provide its name."""
    name = f"rotation-{cluster.namespace}"
    cluster.call("POST", CONFIGURATIONS, configuration(name, cluster.namespace, 1))
    yield name
    cluster.call("DELETE", f"{CONFIGURATIONS}/{name}")
    cluster.delete("Secret", WEBHOOK_SECRET)


@pytest.fixture
def client(control_plane):
    """Return a context manager that connects the operator's API client."""

    @asynccontextmanager
    async def connected() -> AsyncIterator[Api]:
        created = await config.new_client_from_config(str(control_plane.kubeconfig))
        async with created as inner:
            assert isinstance(inner, ApiClient)
            yield Api(inner)

    return connected


class Replica:
    """An operator that renews the certificate, and a webhook that uses it."""

    def __init__(self, api: Api, cluster: Cluster, name: str) -> None:
        self.context = server_context()
        objects = SharedObjects(api, cluster.namespace, configuration=name)
        self._publisher = CertificatePublisher(objects, ["localhost"])
        self._certificate = SecretCertificate(objects, self.context)
        self._cluster, self._name = cluster, name

    async def refresh(self, now: datetime) -> None:
        await self._publisher.refresh(now)
        await self._certificate.refresh(now)

    async def served_certificate(self) -> x509.Certificate:
        """Return the served certificate. Fail if the API server does not trust it."""
        found = self._cluster.call("GET", f"{CONFIGURATIONS}/{self._name}")
        bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])
        trust = ssl.create_default_context(cadata=bundle.decode())

        async def close(*_: object) -> None:
            pass

        async with listening(close, ssl=self.context) as address:
            connection = asyncio.open_connection("localhost", address.split(":")[1], ssl=trust)
            _, writer = await asyncio.wait_for(connection, 10)
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
        return x509.load_der_x509_certificate(certificate)


def test_each_served_certificate_is_trusted_during_a_renewal(cluster, named, client):
    async def scenario() -> None:
        async with client() as api:
            replica = Replica(api, cluster, named)
            await replica.refresh(NOW - DUE)
            first = await replica.served_certificate()
            await replica.refresh(NOW - timedelta(days=31))
            assert await replica.served_certificate() == first  # it is not due yet
            await replica.refresh(NOW)  # publishes the next authority
            assert await replica.served_certificate() == first
            await replica.refresh(NOW)
            assert await replica.served_certificate() != first

    asyncio.run(scenario())


def test_two_replicas_serve_the_same_certificate(cluster, named, client):
    async def scenario() -> None:
        async with client() as api:
            both = [Replica(api, cluster, named) for _ in range(2)]
            for now in (NOW - DUE, NOW, NOW):
                await asyncio.gather(*(one.refresh(now) for one in both))
                one, other = [await replica.served_certificate() for replica in both]
                assert one == other

    asyncio.run(scenario())
