"""The secrets of each input: derived from a key, and written to a Secret that is never read here.

The operator may create Secrets in the namespaces of inputs, but not get, list or change them. So it
computes them again whenever it calls a dispatcher, from the input's uid and a key that only a
Secret in the operator's own namespace has. An input has either a token, or the private keys of its
certificates. The certificates themselves are public: they are in a ConfigMap.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from distributed_input.api import files, identity, names
from distributed_input.api.identity import Identity
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.certificates.renewal import MOUNTED_ROLES
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import SECRET
from distributed_input_operator.kube.owner import confirm
from distributed_input_operator.objects.shared import key_secret, token_secret
from distributed_input_operator.objects.snapshot import Manifest

_KEY_FIELD = "key"
_KEY_BYTES = 32
_CHECK_SECONDS = 300.0
"""Seconds after which the operator tries to create the Secret again: somebody may have deleted it.
The operator must not watch Secrets."""
_LEFTOVER_SECONDS = 30.0
"""Time for which the Secret of a new input may be that of a deleted input of the same name. The
garbage collector needs a few seconds to delete it."""


@dataclass
class _SecretState:
    """What is known of one input's Secret."""

    uid: str
    since: float
    """Time since when it is known."""
    may_be_leftover: bool
    """Whether one that exists may be that of a deleted input."""
    check_at: float = 0.0


class InputTokens:
    """The tokens of all inputs."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        key_secret: str = names.TOKEN_KEY_SECRET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create without a key, which is read when the first token is needed.

        Args:
            api: client of the API server.
            namespace: the operator's namespace.
            key_secret: name of the Secret with the key, in this namespace.
            clock: seconds.
        """
        self._api = api
        self._namespace, self._key_secret = namespace, key_secret
        self._clock = clock
        self._key = b""
        self._known: dict[InputKey, _SecretState] = {}

    async def token(self, resource: DistributedInput) -> str:
        """Return the input's token. Raise ApiError if the key cannot be read."""
        return derive(await self._master(), resource.metadata.uid or "")

    async def authority(self, resource: DistributedInput) -> InputAuthority:
        """Return the authority of an encrypted input. Raise ApiError if the key cannot be read."""
        meta = resource.metadata
        owner = Identity(meta.namespace or "", meta.name, meta.uid or "", identity.OPERATOR)
        return InputAuthority(await self._master(), owner)

    def is_due(self, resource: DistributedInput, *, applied: bool) -> bool:
        """Return whether to try to create the input's Secret now.

        Args:
            resource: the input.
            applied: whether its status says that all was written. Then the Secret was created, and
                a new leader checks it as late as the one before would.
        """
        key, uid, now = _key_of(resource), resource.metadata.uid or "", self._clock()
        known = self._known.get(key)
        if known is None or known.uid != uid:
            if not applied:
                return True
            check_at = now + random.uniform(0.0, _CHECK_SECONDS)
            known = self._known[key] = _SecretState(uid, now, False, check_at)
        return now >= known.check_at

    async def create(
        self, resource: DistributedInput, secret: Manifest, *, young: bool = False
    ) -> None:
        """Create an input's Secret, if there is none.

        Args:
            resource: the input.
            secret: the Secret.
            young: whether the input is new. Its Secret is then created without reading the input.

        Raises:
            ApiError: the Secret cannot be created.
            OwnerGone: the input is deleted.
        """
        key, uid, now = _key_of(resource), resource.metadata.uid or "", self._clock()
        known = self._known.get(key)
        if known is None or known.uid != uid:
            known = self._known[key] = _SecretState(uid, now, young)
        if not young:
            await confirm(self._api, resource)
        exists = not await self._create(secret)
        if exists and known.may_be_leftover and now - known.since < _LEFTOVER_SECONDS:
            name = secret["metadata"]["name"]
            raise ApiError(409, "Leftover", f"Secret {name} of a deleted input may still exist")
        known.check_at, known.may_be_leftover = now + _CHECK_SECONDS, False

    def check(self, key: InputKey) -> None:
        """Try to create the Secret again at the next reconciliation."""
        if key in self._known:
            self._known[key].check_at = 0.0

    def forget(self, key: InputKey) -> None:
        """Drop what is known of a deleted input."""
        self._known.pop(key, None)

    async def _create(self, manifest: Manifest) -> bool:
        """Create a Secret. Return False if it exists already."""
        try:
            await self._api.create(manifest)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return False
        return True

    async def _master(self) -> bytes:
        """Return the key. Read it once, and create it if there is none."""
        if not self._key:
            self._key = await self._read_key()
        return self._key

    async def _read_key(self) -> bytes:
        found = await self._api.get(SECRET, self._namespace, self._key_secret)
        if found is None:
            await self._create(_key_manifest(self._namespace, self._key_secret))
            # Another replica may have created it first.
            found = await self._api.get(SECRET, self._namespace, self._key_secret)
        try:
            key = base64.b64decode((found or {})["data"][_KEY_FIELD], validate=True)
        except (KeyError, TypeError, binascii.Error):
            key = b""
        if len(key) < _KEY_BYTES:
            raise ApiError(
                503,
                "KeyUnusable",
                f"Secret {self._key_secret} in namespace {self._namespace} has no "
                f"{_KEY_FIELD!r} of {_KEY_BYTES} bytes: delete the Secret, and the operator "
                "creates a new one",
            )
        return key


def derive(key: bytes, uid: str) -> str:
    """Return the token of the input with this uid."""
    digest = hmac.digest(key, f"input/{uid}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def secret_of(resource: DistributedInput, credentials: str | InputAuthority) -> Manifest:
    """Return the Secret with an input's token, or with the private keys of its certificates."""
    if isinstance(credentials, str):
        return token_secret(resource, credentials)
    keys = {files.private_key(role): credentials.key(role) for role in MOUNTED_ROLES}
    return key_secret(resource, keys)


def _key_of(resource: DistributedInput) -> InputKey:
    return resource.metadata.namespace or "", resource.metadata.name


def _key_manifest(namespace: str, name: str) -> Json:
    key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {_KEY_FIELD: key}}
