"""Read an input live before children that it had before are created again.

The store may still have an input that is deleted. The garbage collector deletes its children, and
the operator must not create them again.
"""

from __future__ import annotations

from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import INPUT
from distributed_input_operator.kube.store import Store


class OwnerGone(Exception):
    """The input is deleted, or is being deleted.

    Attributes:
        uid: the uid of the deleted input.
        found: the object that the API server has under its name. None: none.
    """

    def __init__(self, uid: str, found: Json | None) -> None:
        super().__init__(f"the input with uid {uid} is deleted")
        self.uid = uid
        self.found = found


async def confirm(api: Api, resource: DistributedInput) -> None:
    """Return if the API server still has this input. Raises OwnerGone, or ApiError."""
    meta = resource.metadata
    uid = meta.uid or ""
    found = await api.get(INPUT, meta.namespace or "", meta.name)
    if found is None or found["metadata"]["uid"] != uid or "deletionTimestamp" in found["metadata"]:
        raise OwnerGone(uid, found)


def correct(store: Store, key: InputKey, gone: OwnerGone) -> None:
    """Replace the input in the store by what the API server has."""
    known = store.input(key)
    if known is not None and known["metadata"]["uid"] == gone.uid:
        store.drop(known)
    if gone.found is not None:
        store.put(gone.found)
