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
from distributed_input_operator.kube.api import Api, ApiError, Json
from distributed_input_operator.kube.kinds import SECRET
from distributed_input_operator.kube.owner import confirm
from distributed_input_operator.objects.shared import key_secret, token_secret

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
    """Time of the first attempt to create it."""
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

    async def token(self, resource: DistributedInput, *, young: bool = False) -> str:
        """Return the input's token. Create its Secret if there is none.

        Args:
            resource: the input.
            young: whether the input is new. Its Secret is then created without reading the input.

        Raises:
            ApiError: the key cannot be read, or the Secret cannot be created.
            OwnerGone: the input is deleted.
        """
        if not self._key:
            self._key = await self._read_key()
        token = derive(self._key, resource.metadata.uid or "")
        await self._ensure(resource, lambda: token_secret(resource, token), young)
        return token

    async def authority(self, resource: DistributedInput) -> InputAuthority:
        """Return the authority of an encrypted input. Raise ApiError if the key cannot be read."""
        if not self._key:
            self._key = await self._read_key()
        meta = resource.metadata
        owner = Identity(meta.namespace or "", meta.name, meta.uid or "", identity.OPERATOR)
        return InputAuthority(self._key, owner)

    async def ensure_keys(
        self, resource: DistributedInput, authority: InputAuthority, *, young: bool = False
    ) -> None:
        """Create the Secret with the keys of an encrypted input, if there is none.

        The arguments and errors are those of `token`.
        """
        await self._ensure(resource, lambda: key_secret(resource, _keys(authority)), young)

    async def _ensure(
        self, resource: DistributedInput, secret: Callable[[], Json], young: bool
    ) -> None:
        """Create an input's Secret, unless that was done recently."""
        uid, namespace = resource.metadata.uid or "", resource.metadata.namespace or ""
        key, now = (namespace, resource.metadata.name), self._clock()
        known = self._known.get(key)
        if known is None or known.uid != uid:
            known = self._known[key] = _SecretState(uid, now, young)
        if now < known.check_at:
            return
        if not young:
            await confirm(self._api, resource)
        manifest = secret()
        exists = not await self._create(manifest)
        if exists and known.may_be_leftover and now - known.since < _LEFTOVER_SECONDS:
            name = manifest["metadata"]["name"]
            raise ApiError(409, "Leftover", f"Secret {name} of a deleted input may still exist")
        known.check_at, known.may_be_leftover = now + _CHECK_SECONDS, False

    def check(self, key: InputKey) -> None:
        """Try to create the Secret again when the token is next needed."""
        if key in self._known:
            self._known[key].check_at = 0.0

    def forget(self, key: InputKey) -> None:
        """Drop what is known of a deleted input."""
        self._known.pop(key, None)

    async def _create(self, manifest: Json) -> bool:
        """Create a Secret. Return False if it exists already."""
        try:
            await self._api.create(manifest)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return False
        return True

    async def _read_key(self) -> bytes:
        """Return the key. Create it if there is none."""
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


def _keys(authority: InputAuthority) -> dict[str, str]:
    """Return the data of the Secret of an encrypted input."""
    return {files.private_key(role): authority.key(role) for role in MOUNTED_ROLES}


def _key_manifest(namespace: str, name: str) -> Json:
    key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {_KEY_FIELD: key}}
