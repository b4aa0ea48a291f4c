"""Renewal of the webhook's certificate, and of the path under which the API server calls it.

    operator: Secret (certificate, key) ─► webhook configuration (caBundle, path)
    webhook:  Secret and configuration  ─► TLS and accepted paths of this replica

A new certificate passes these steps in this order, so that the API server trusts it before a
replica uses it. Every replica of the operator renews, also without the leader's lease. If two
replicas write the Secret at the same time, the API server refuses the second write, because of the
resourceVersion. The webhook sends no writes.

The last part of the path is derived from the key and the time, so that the webhook accepts a path
before the API server uses it. It changes, because the API server's error message has the whole URL
if it cannot reach the webhook.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distributed_input.api import names
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.json_text import Json
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
_PATH_KEY = "path-key"
"""Field of the Secret: the key from which the paths are derived, as hexadecimal text."""
_KEY_BYTES = 32
_KEY = re.compile(rb"[0-9a-f]{64}")
PATH_SECONDS = 600
"""Time for which one path is used. The webhook accepts that of the time before and after, too."""
_MAX_ATTEMPTS = 3


def path_at(key: bytes, now: datetime, periods: int = 0) -> str:
    """Return the last part of the path, `periods` after the current one."""
    number = int(now.timestamp()) // PATH_SECONDS + periods
    return hmac.digest(key, f"path/{number}".encode(), hashlib.sha256).hex()[:32]


@dataclass(frozen=True)
class SharedObjects:
    """The two objects by which the operator gives the webhook its certificate and path."""

    api: Api
    namespace: str
    """Of the Secret."""
    secret: str = names.WEBHOOK_SECRET
    """Name of the Secret."""
    configuration: str = names.WEBHOOK_CONFIGURATION
    """Name of the MutatingWebhookConfiguration."""

    async def read_secret(self) -> Json | None:
        """Return the Secret. None: there is none. Raises ApiError."""
        return await self.api.get(SECRET, self.namespace, self.secret)

    async def read_configuration(self) -> Json:
        """Return the webhook configuration. Raises ApiError."""
        return await self.api.request("GET", f"{_CONFIGURATIONS}/{self.configuration}")


class CertificatePublisher:
    """Generates and renews the certificate, and publishes its authority and the path.

    Args:
        objects: get the certificate and the path.
        hosts: DNS names under which the API server calls the webhook, SERVICE.NAMESPACE.svc.
    """

    def __init__(self, objects: SharedObjects, hosts: Sequence[str]) -> None:
        self._objects, self._api = objects, objects.api
        self._hosts = tuple(hosts)

    async def refresh(self, now: datetime) -> None:
        """Renew the certificate if it is due, and publish its authority and the path.

        Raises:
            ApiError: the Secret or the webhook configuration cannot be read or written.
        """
        certificate, key = await self._renewed(now)
        await self._publish(certificate, path_at(key, now))

    async def _renewed(self, now: datetime) -> tuple[Certificate, bytes]:
        """Return the certificate and the key of the path. Generate what the Secret lacks."""
        for attempt in range(_MAX_ATTEMPTS):
            secret = await self._objects.read_secret()
            found, key = _parse_secret(secret)
            usable = found is not None and certificates.is_usable(found, self._hosts, now)
            if found and usable and key:
                return found, key
            if not found or not usable:
                found = certificates.generate(self._hosts, now, found)
            key = key or secrets.token_hex(_KEY_BYTES).encode()
            try:
                await self._store(secret, found, key)
            except ApiError as error:
                if error.status == 409 and attempt < _MAX_ATTEMPTS - 1:
                    continue  # another replica wrote the Secret first
                raise
            _log.info("stored a webhook certificate in Secret %s", self._objects.secret)
            return found, key
        raise AssertionError("unreachable")

    async def _store(self, secret: Json | None, one: Certificate, key: bytes) -> None:
        data = dict(zip(_SECRET_KEYS, map(_encode, (one.chain, one.key, one.bundle)), strict=True))
        data[_PATH_KEY] = _encode(key)
        namespace, name = self._objects.namespace, self._objects.secret
        if secret is None:
            meta = {"name": name, "namespace": namespace}
            head = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
            await self._api.create({**head, "metadata": meta, "data": data})
            return
        changed = {**secret, "data": {**(secret.get("data") or {}), **data}}
        await self._api.request("PUT", SECRET.path(namespace, name), body=changed)

    async def _publish(self, certificate: Certificate, path: str) -> None:
        """Write the trusted authorities and the path to the webhook configuration."""
        bundle, name = _encode(certificate.bundle), self._objects.configuration
        for attempt in range(_MAX_ATTEMPTS):
            found = await self._objects.read_configuration()
            changes = _configuration_changes(found, bundle, path)
            if not changes:
                return
            try:
                await self._api.request(
                    "PATCH",
                    f"{_CONFIGURATIONS}/{name}",
                    body=changes,
                    headers={"Content-Type": "application/json-patch+json"},
                )
            except ApiError as error:
                if error.status in (409, 422) and attempt < _MAX_ATTEMPTS - 1:
                    continue  # another replica wrote it first
                raise
            _log.debug("updated caBundle and path of MutatingWebhookConfiguration %s", name)
            return


def _configuration_changes(found: Json, bundle: str, path: str) -> list[dict[str, Any]]:
    """Return the JSON patch of a webhook configuration, which fails if it has changed since."""
    changes: list[dict[str, Any]] = []
    for place, webhook in enumerate(found.get("webhooks") or ()):
        before = webhook["clientConfig"]
        after = {**_at_path(before, path), "caBundle": bundle}
        if after != before:
            pointer = f"/webhooks/{place}/clientConfig"
            changes.append({"op": "test", "path": pointer, "value": before})
            changes.append({"op": "add", "path": pointer, "value": after})
    return changes


class SecretCertificate:
    """The certificate and the path in the Secret, which an operator renews. It only reads.

    Args:
        objects: have the certificate and the path.
        context: TLS settings of the server.
    """

    def __init__(self, objects: SharedObjects, context: ssl.SSLContext) -> None:
        self._objects, self._context = objects, context
        self._served: Certificate | None = None
        self._trusted: Certificate | None = None
        """The certificate that the API server trusted at the last refresh."""
        self.paths: tuple[str, ...] = ()
        """Accepted last parts of the path."""

    async def refresh(self, now: datetime) -> None:
        """Serve the certificate in the Secret, once the API server trusts it. Accept new paths.

        Raises:
            ApiError: the Secret or the webhook configuration cannot be read, or the operator has
                not published a certificate yet.
        """
        current, key = _parse_secret(await self._objects.read_secret())
        if current is None or not key:
            name = self._objects.secret
            raise ApiError(503, "NoCertificate", f"Secret {name} has no certificate yet")
        found = await self._objects.read_configuration()
        clients = [webhook["clientConfig"] for webhook in found.get("webhooks") or ()]
        # The configured path is older while no operator runs.
        configured = (path for path in map(_path_of, clients) if path)
        self.paths = (*(path_at(key, now, periods) for periods in (0, -1, 1)), *configured)
        self._serve(current, [base64.b64decode(one.get("caBundle") or "") for one in clients])

    def _serve(self, current: Certificate, bundles: list[bytes]) -> None:
        """Serve a certificate, unless API servers may not trust it yet."""
        if current == self._served:
            return

        def trusted(one: Certificate) -> bool:
            return all(certificates.trusts(bundle, one) for bundle in bundles)

        if not trusted(current):
            if self._served is None:
                raise ApiError(503, "NoCertificate", "the API server does not trust it yet")
            return
        known, self._trusted = self._trusted == current, current
        # API servers learn about a new authority with a delay. As long as they trust the served
        # certificate, it stays until the next refresh.
        if self._served is None or known or not trusted(self._served):
            certificates.load(self._context, current.chain, current.key)
            self._served = current


class MountedCertificate:
    """A certificate in a folder, with tls.crt and tls.key, that another program renews.

    That program, such as cert-manager, also updates the webhook configuration: see the annotation
    cert-manager.io/inject-ca-from.
    """

    def __init__(self, folder: Path, context: ssl.SSLContext) -> None:
        self._folder, self._context = folder, context
        self._served: tuple[bytes, ...] = ()
        self.paths = ("",)
        """The path has no last part: this program cannot publish one."""

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


def _at_path(client_config: Json, path: str) -> Json:
    """Return the clientConfig of a webhook with this last part of the path."""
    whole = f"{names.WEBHOOK_PATH}/{path}"
    if "service" in client_config:
        return {**client_config, "service": {**client_config["service"], "path": whole}}
    return {**client_config, "url": urlsplit(client_config["url"])._replace(path=whole).geturl()}


def _path_of(client_config: Json) -> str:
    """Return the last part of the path that the API server uses. Empty: it has none."""
    service, url = client_config.get("service") or {}, client_config.get("url") or ""
    head, _, last = str(service.get("path") or urlsplit(url).path).rpartition("/")
    return last if head == names.WEBHOOK_PATH else ""


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _parse_secret(secret: Json | None) -> tuple[Certificate | None, bytes]:
    """Return the certificate and the key of a Secret. None and b"": it has none."""
    data = (secret or {}).get("data") or {}
    try:
        found = Certificate(*(base64.b64decode(data[key]) for key in _SECRET_KEYS))
    except (KeyError, TypeError, binascii.Error):
        found = None
    try:
        key = base64.b64decode(data.get(_PATH_KEY) or "")
    except (TypeError, binascii.Error):
        key = b""
    return found, key if _KEY.fullmatch(key) else b""
