"""The encryption of an input in a cluster: what its spec requests, or what it began with.

The default of new inputs is `all`. Inputs that began without encryption, under an operator that
knew no other default, continue without it. The operator decides that once and writes the decision
to the status. All others read the spec, and then the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from distributed_input.api.resource.input import DistributedInput

Encryption = Literal["none", "control", "all"]
DEFAULT: Encryption = "all"
"""Encryption of new inputs without `spec.encryption`."""
EARLIER_DEFAULT: Encryption = "none"
"""Encryption of inputs without `spec.encryption` that an earlier operator has processed."""


def decided_encryption(stored: Mapping[str, Any]) -> Encryption | None:
    """Return what the spec requests, or else what the status records. None: neither has a value.

    Args:
        stored: a DistributedInput of v1alpha1 as JSON, with its status if it has one.
    """
    for part in (stored.get("spec"), stored.get("status")):
        found = part.get("encryption") if isinstance(part, Mapping) else None
        if found in get_args(Encryption):
            return found
    return None


def encryption_of(stored: Mapping[str, Any]) -> Encryption:
    """Return the encryption of an input, from its spec and its status alone.

    An operator writes conditions and the encryption together. So a status with conditions alone is
    that of an earlier operator, which encrypted only inputs whose spec requested it.

    Args:
        stored: as in `decided_encryption`.
    """
    if decided := decided_encryption(stored):
        return decided
    status = stored.get("status")
    is_processed = isinstance(status, Mapping) and bool(status.get("conditions"))
    return EARLIER_DEFAULT if is_processed else DEFAULT


def with_encryption(resource: DistributedInput, encryption: Encryption) -> DistributedInput:
    """Return the input as if its spec requested this encryption."""
    spec = resource.spec.model_copy(update={"encryption": encryption})
    return resource.model_copy(update={"spec": spec})
