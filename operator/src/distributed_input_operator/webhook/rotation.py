"""Renewal of the webhook's certificate. Every replica of the operator runs it independently.

    Secret (certificate) ─► webhook configuration (caBundle) ─► TLS of this replica

A new certificate passes these steps in this order, so that the API server trusts it before a
replica uses it. If replicas write at the same time, the Secret's resourceVersion lets only one of
them succeed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from distributed_input.api import names
from distributed_input_operator.kube.api import Api, ApiError, Json
from distributed_input_operator.kube.kinds import SECRET
from distributed_input_operator.webhook import certificates
from distributed_input_operator.webhook.certificates import Certificate

_log = logging.getLogger(__name__)

REFRESH_SECONDS = 10.0
"""Interval of checks. If somebody removes the caBundle, no trainer pod can be created until the
next check restores it."""
_RETRY_SECONDS = 5.0
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_SECRET_KEYS = ("tls.crt", "tls.key", "ca.crt")
_MAX_ATTEMPTS = 3


class ManagedCertificate:
    """A certificate that the operator generates, renews, and stores in a Secret."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        hosts: Sequence[str],
        context: ssl.SSLContext,
        *,
        secret: str = names.WEBHOOK_SECRET,
        configuration: str = names.WEBHOOK_CONFIGURATION,
    ) -> None:
        """Initialize without a certificate.

        Args:
            api: client of the API server.
            namespace: of the Secret.
            hosts: DNS names under which the API server calls the webhook, SERVICE.NAMESPACE.svc.
            context: TLS settings of the server.
            secret: name of the Secret.
            configuration: name of the MutatingWebhookConfiguration.
        """
        self._api = api
        self._namespace, self._secret, self._configuration = namespace, secret, configuration
        self._hosts = tuple(hosts)
        self._context = context
        self._served: Certificate | None = None
        self._published: Certificate | None = None

    async def refresh(self, now: datetime) -> None:
        """Renew the certificate if it is due, publish its authority, and serve it.

        Raises:
            ApiError: the Secret or the webhook configuration cannot be read or written.
        """
        current = await self._stored(now)
        await self._publish(current.bundle)
        served, published = self._served, self._published
        self._published = current
        # API servers learn about a new authority with a delay. As long as they trust the served
        # certificate, it stays until the next refresh.
        delay = served and current != published and certificates.trusts(current.bundle, served)
        if current != served and not delay:
            certificates.load(self._context, current.chain, current.key)
            self._served = current

    async def _stored(self, now: datetime) -> Certificate:
        """Return the certificate in the Secret, or generate and store a new one."""
        for attempt in range(_MAX_ATTEMPTS):
            secret = await self._api.get(SECRET, self._namespace, self._secret)
            found = _parse_secret(secret) if secret else None
            if found and certificates.is_usable(found, self._hosts, now):
                return found
            new = certificates.generate(self._hosts, now, found)
            try:
                await self._store(secret, new)
            except ApiError as error:
                if error.status == 409 and attempt < _MAX_ATTEMPTS - 1:
                    continue  # another replica wrote the Secret first
                raise
            _log.info("generated a webhook certificate in Secret %s", self._secret)
            return new
        raise AssertionError("unreachable")

    async def _store(self, secret: Json | None, certificate: Certificate) -> None:
        values = (certificate.chain, certificate.key, certificate.bundle)
        encoded = (base64.b64encode(value).decode() for value in values)
        data = dict(zip(_SECRET_KEYS, encoded, strict=True))
        if secret is None:
            meta = {"name": self._secret, "namespace": self._namespace}
            head = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
            await self._api.create({**head, "metadata": meta, "data": data})
            return
        changed = {**secret, "data": {**(secret.get("data") or {}), **data}}
        await self._api.request("PUT", SECRET.path(self._namespace, self._secret), body=changed)

    async def _publish(self, bundle: bytes) -> None:
        """Write the trusted authorities to the webhook configuration."""
        path = f"{_CONFIGURATIONS}/{self._configuration}"
        found = await self._api.request("GET", path)
        text = base64.b64encode(bundle).decode()
        stale = [
            place
            for place, webhook in enumerate(found.get("webhooks") or ())
            if webhook["clientConfig"].get("caBundle") != text
        ]
        if not stale:
            return
        changes: list[dict[str, Any]] = []
        for place in stale:
            pointer, name = f"/webhooks/{place}", found["webhooks"][place]["name"]
            changes.append({"op": "test", "path": f"{pointer}/name", "value": name})
            changes.append({"op": "add", "path": f"{pointer}/clientConfig/caBundle", "value": text})
        await self._api.request(
            "PATCH", path, body=changes, headers={"Content-Type": "application/json-patch+json"}
        )
        _log.info("updated caBundle of MutatingWebhookConfiguration %s", self._configuration)


class MountedCertificate:
    """A certificate in a folder, with tls.crt and tls.key, that another program renews.

    That program, such as cert-manager, also updates the webhook configuration: see the annotation
    cert-manager.io/inject-ca-from.
    """

    def __init__(self, folder: Path, context: ssl.SSLContext) -> None:
        self._folder, self._context = folder, context
        self._served: tuple[bytes, ...] = ()

    async def refresh(self, _now: datetime) -> None:
        """Serve the certificate in the folder if it is new.

        Raises:
            OSError: a file cannot be read.
            ssl.SSLError: the files do not fit.
        """
        found = tuple((self._folder / name).read_bytes() for name in _SECRET_KEYS[:2])
        if found != self._served:
            certificates.load(self._context, *found)
            self._served = found


async def refresh_forever(
    refresh: Callable[[datetime], Awaitable[None]], ready: asyncio.Event
) -> None:
    """Call `refresh` at regular intervals, until cancelled.

    Args:
        refresh: of a certificate.
        ready: set after the first success, when the server has a certificate.
    """
    logged = ""
    while True:
        try:
            await refresh(datetime.now(timezone.utc))
            ready.set()
            message = ""
        except (ApiError, OSError) as error:  # ssl.SSLError is an OSError
            message = _with_remedy(error)
        if message and message != logged:
            _log.error("cannot refresh the webhook's certificate: %s", message)
        logged = message
        await asyncio.sleep(_RETRY_SECONDS if message else REFRESH_SECONDS)


def _with_remedy(error: Exception) -> str:
    if not isinstance(error, ApiError):
        return f"{error}: mount a folder with tls.crt and tls.key"
    if error.status == 403:
        return f"{error}: grant this permission with the chart's role"
    if error.status == 404:
        return f"{error}: install the webhook with the chart, or disable injection"
    return str(error)


def _parse_secret(secret: Json) -> Certificate | None:
    data = secret.get("data") or {}
    try:
        return Certificate(*(base64.b64decode(data[key]) for key in _SECRET_KEYS))
    except (KeyError, TypeError, binascii.Error):
        return None
