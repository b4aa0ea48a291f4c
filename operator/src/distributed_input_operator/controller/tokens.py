"""The token of each input: made once, kept in a Secret, never changed and never logged."""

from __future__ import annotations

import base64
import binascii
import secrets
import time

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.kube.api import Api, ApiError, Json
from distributed_input_operator.kube.kinds import SECRET
from distributed_input_operator.kube.owner import confirm
from distributed_input_operator.kube.store import InputKey
from distributed_input_operator.objects.shared import token_secret

_BYTES = 32
_SURE_SECONDS = 300.0
"""A Secret that was there is believed to be there for so long: there is no right to watch them."""


class Tokens:
    """The tokens of the inputs that the operator works on."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[InputKey, tuple[str, str, float]] = {}
        """Of each input: whose token (its uid), the token, and until when it is believed."""

    async def token(self, resource: DistributedInput, *, young: bool = False) -> str:
        """The input's token, after making it where there was none. Raises ApiError, and OwnerGone
        where there is none because the input is deleted.

        young: there is most likely none, which spares the question.
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
            raise ApiError(409, "Leftover", f"Secret {name} of a deleted input was still there")
        token = _token(secret, resource)
        self._known[key] = (uid, token, time.monotonic() + _SURE_SECONDS)
        return token

    async def _create(self, resource: DistributedInput) -> Json | None:
        """A new one; None where there is one already."""
        try:
            return await self._api.create(token_secret(resource, secrets.token_urlsafe(_BYTES)))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return None

    def forget(self, key: InputKey) -> None:
        """The input is gone."""
        self._known.pop(key, None)


def _token(secret: Json, resource: DistributedInput) -> str:
    owners = [one["uid"] for one in secret["metadata"].get("ownerReferences", [])]
    name = secret["metadata"]["name"]
    if owners and resource.metadata.uid not in owners:
        raise ApiError(409, "Leftover", f"Secret {name} of a deleted input is still there")
    try:
        return base64.b64decode(secret["data"][names.TOKEN_KEY]).decode().strip()
    except (KeyError, TypeError, binascii.Error, UnicodeDecodeError):
        raise ApiError(
            422,
            "TokenUnusable",
            f"Secret {name} has no usable key {names.TOKEN_KEY!r}: delete the Secret, and the "
            "operator makes a new one",
        ) from None
