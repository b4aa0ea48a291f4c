"""Keeps the webhook's certificate fresh, and known to the API server: every replica on its own.

    Secret (certificate) ─► webhook configuration (caBundle) ─► this replica's TLS

in this order, so that nobody is shown a certificate that he does not trust yet. Replicas that write
at the same moment are told apart by the Secret's version.
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

LOOK_SECONDS = 10.0
"""Until a bundle that someone removed is back, no trainer can be made."""
_RETRY_SECONDS = 5.0
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_KEYS = ("tls.crt", "tls.key", "ca.crt")
_TRIES = 3


class Keeper:
    """The certificate in a Secret of `namespace`, made and renewed here."""

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
        """`hosts`: what the API server calls the webhook, SERVICE.NAMESPACE.svc."""
        self._api = api
        self._namespace, self._secret, self._configuration = namespace, secret, configuration
        self._hosts = tuple(hosts)
        self._context = context
        self._served: Certificate | None = None
        self._told: Certificate | None = None

    async def look(self, now: datetime) -> bool:
        """Renew what is due, tell the API server, serve it; whether there is one that serves.

        Raises ApiError.
        """
        wanted = await self._stored(now)
        await self._tell(wanted.bundle)
        served, told = self._served, self._told
        self._told = wanted
        # Who serves one that is still trusted waits until the next look: all API servers have
        # heard of the new authority by then.
        waits = served and wanted != told and certificates.trusts(wanted.bundle, served)
        if wanted != served and not waits:
            certificates.load(self._context, wanted.chain, wanted.key)
            self._served = wanted
        return True

    async def _stored(self, now: datetime) -> Certificate:
        for attempt in range(_TRIES):
            secret = await self._api.get(SECRET, self._namespace, self._secret)
            found = _certificate(secret) if secret else None
            if found and certificates.is_good(found, self._hosts, now):
                return found
            made = certificates.make(self._hosts, now, found)
            try:
                await self._store(secret, made)
            except ApiError as error:
                if error.status == 409 and attempt < _TRIES - 1:
                    continue  # another replica was quicker
                raise
            _log.info("made a certificate for the webhook, Secret %s", self._secret)
            return made
        raise AssertionError("unreachable")

    async def _store(self, secret: Json | None, made: Certificate) -> None:
        values = (made.chain, made.key, made.bundle)
        data = {k: base64.b64encode(v).decode() for k, v in zip(_KEYS, values, strict=True)}
        if secret is None:
            meta = {"name": self._secret, "namespace": self._namespace}
            head = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
            await self._api.create({**head, "metadata": meta, "data": data})
            return
        changed = {**secret, "data": {**(secret.get("data") or {}), **data}}
        await self._api.request("PUT", SECRET.path(self._namespace, self._secret), body=changed)

    async def _tell(self, bundle: bytes) -> None:
        """Put the authorities into the webhook configuration."""
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
            where, name = f"/webhooks/{place}", found["webhooks"][place]["name"]
            changes.append({"op": "test", "path": f"{where}/name", "value": name})
            changes.append({"op": "add", "path": f"{where}/clientConfig/caBundle", "value": text})
        await self._api.request(
            "PATCH", path, body=changes, headers={"Content-Type": "application/json-patch+json"}
        )
        _log.info("told the API server whom to trust: %s", self._configuration)


class Mounted:
    """A certificate that someone else keeps, cert-manager say: tls.crt and tls.key in a folder.

    The API server is told by them too: the annotation cert-manager.io/inject-ca-from.
    """

    def __init__(self, folder: Path, context: ssl.SSLContext) -> None:
        self._folder, self._context = folder, context
        self._served: tuple[bytes, ...] = ()

    async def look(self, _now: datetime) -> bool:
        """Serve what is mounted, where it is new. Raises OSError, ssl.SSLError."""
        found = tuple((self._folder / name).read_bytes() for name in _KEYS[:2])
        if found != self._served:
            certificates.load(self._context, *found)
            self._served = found
        return True


async def keep(
    look: Callable[[datetime], Awaitable[bool]], serving: Callable[[bool], None]
) -> None:
    """Look again and again until cancelled. `serving` hears whether there is a certificate."""
    last = ""
    while True:
        try:
            serving(await look(datetime.now(timezone.utc)))
            trouble = ""
        except (ApiError, OSError) as error:  # ssl.SSLError is an OSError
            trouble = _remedy(error)
        if trouble and trouble != last:
            _log.error("the webhook's certificate: %s", trouble)
        last = trouble
        await asyncio.sleep(_RETRY_SECONDS if trouble else LOOK_SECONDS)


def _remedy(error: Exception) -> str:
    if not isinstance(error, ApiError):
        return f"{error}: mount a folder with tls.crt and tls.key"
    if error.status == 403:
        return f"{error}: grant this with the chart's role"
    if error.status == 404:
        return f"{error}: install the webhook with the chart, or switch injection off"
    return str(error)


def _certificate(secret: Json) -> Certificate | None:
    data = secret.get("data") or {}
    try:
        return Certificate(*(base64.b64decode(data[key]) for key in _KEYS))
    except (KeyError, TypeError, binascii.Error):
        return None
