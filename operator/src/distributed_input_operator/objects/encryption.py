"""The encryption of an input that has none in its spec, from what the cluster has of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed_input.api import flags
from distributed_input.api.resource.lifetime.encryption import (
    DEFAULT,
    EARLIER_DEFAULT,
    Encryption,
    encryption_of,
)
from distributed_input_operator.objects.snapshot import Manifest


def initial_encryption(stored: Mapping[str, Any], dispatcher: Manifest) -> Encryption:
    """Return the encryption that an input began with, if neither spec nor status has it.

    Running trainers have either a token or a certificate, so the answer never changes. A restarted
    operator gives the same.

    Args:
        stored: the DistributedInput as JSON, with its status.
        dispatcher: the live Deployment of the dispatcher's name; empty if there is none.
    """
    # An operator that ended after its first write has left a Deployment and no status.
    if _belongs_to(dispatcher, stored["metadata"].get("uid", "")):
        return DEFAULT if _has_certificate(dispatcher) else EARLIER_DEFAULT
    return encryption_of(stored)


def _belongs_to(child: Manifest, uid: str) -> bool:
    """Whether an object is a child of this input, and not of a deleted one of the same name."""
    owners = child.get("metadata", {}).get("ownerReferences") or ()
    return any(one.get("uid") == uid for one in owners)


def _has_certificate(deployment: Manifest) -> bool:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return any(flags.TLS_DIR in (one.get("args") or ()) for one in containers)
