"""The token of each input: created once, stored in a Secret, never changed and never logged."""

from __future__ import annotations

import base64
import binascii
import secrets
import time

from distributed_input.api import files, names
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.kube.api import Api, ApiError, Json
from distributed_input_operator.kube.kinds import SECRET
from distributed_input_operator.kube.owner import confirm
from distributed_input_operator.objects.shared import token_secret

_BYTES = 32
_CACHE_SECONDS = 300.0
"""Seconds for which a token is used without reading its Secret. The operator must not watch
Secrets."""


class TokenCache:
    """The tokens of all inputs."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[InputKey, tuple[str, str, float]] = {}
        """By input: its uid, its token, and the time at which the token expires here."""

    async def token(self, resource: DistributedInput, *, young: bool = False) -> str:
        """Return the input's token. Create it if there is none.

        Args:
            resource: the input.
            young: whether the input is new. Its Secret is then created without a read before.

        Raises:
            ApiError: the token cannot be read or created.
            OwnerGone: there is no Secret because the input is deleted.
        """
        uid, namespace = resource.metadata.uid or "", resource.metadata.namespace or ""
        key = (namespace, resource.metadata.name)
        known = self._known.get(key)
        if known and known[0] == uid and time.monotonic() < known[2]:
            return known[1]
        name = names.shared(resource.metadata.name)
        secret = None
        if not young:
            secret = await self._api.get(SECRET, namespace, name)
            if secret is None:
                await confirm(self._api, resource)
        secret = (
            secret or await self._create(resource) or await self._api.get(SECRET, namespace, name)
        )
        if secret is None:
            raise ApiError(409, "Leftover", f"Secret {name} of a deleted input still existed")
        token = _token(secret, resource)
        self._known[key] = (uid, token, time.monotonic() + _CACHE_SECONDS)
        return token

    async def _create(self, resource: DistributedInput) -> Json | None:
        """Create a new Secret. Return None if it exists already."""
        try:
            return await self._api.create(token_secret(resource, secrets.token_urlsafe(_BYTES)))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return None

    def forget(self, key: InputKey) -> None:
        """Drop the token of a deleted input."""
        self._known.pop(key, None)


def _token(secret: Json, resource: DistributedInput) -> str:
    owners = [one["uid"] for one in secret["metadata"].get("ownerReferences", [])]
    name = secret["metadata"]["name"]
    if owners and resource.metadata.uid not in owners:
        raise ApiError(409, "Leftover", f"Secret {name} of a deleted input still exists")
    try:
        return base64.b64decode(secret["data"][files.TOKEN_KEY]).decode().strip()
    except (KeyError, TypeError, binascii.Error, UnicodeDecodeError):
        raise ApiError(
            422,
            "TokenUnusable",
            f"Secret {name} has no valid key {files.TOKEN_KEY!r}: delete the Secret, and the "
            "operator creates a new one",
        ) from None
