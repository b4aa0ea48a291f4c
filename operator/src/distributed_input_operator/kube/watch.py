"""The watches, by kopf: the only file that imports it. Every body is one call.

Low-level events alone: no finalizers, no annotations, nothing that kopf would write. No index
either: until everything is listed, it would keep each object as it came, and a task for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import kopf

from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.kube.store import Json

Told = Callable[[str | None, Json], None]

_PAGE = 50
_LINGER_SECONDS = 0.1
"""So long kopf keeps an object, and a task for it, in case that more is told of it."""


class _NothingKept(kopf.DiffBaseStorage):
    """Changes are not handled, so nobody asks what an object was before: to copy each is half of
    what kopf does for an event.
    """

    def fetch(self, **_: Any) -> None:
        return None

    def build(self, **_: Any) -> kopf.BodyEssence:
        return cast(kopf.BodyEssence, {})

    def store(self, **_: Any) -> None:
        return None


async def watch(kinds: Sequence[Kind], namespaces: Sequence[str], told: Told) -> None:
    """Watch `kinds` until cancelled, in `namespaces`, or everywhere where there are none.

    `told` gets each event: None (it was there before), ADDED, MODIFIED or DELETED.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.queueing.idle_timeout = _LINGER_SECONDS
    settings.persistence.diffbase_storage = _NothingKept()
    settings.watching.chunk_size = _PAGE
    # Or it would need the right to watch all definitions and namespaces.
    settings.scanning.disabled = True
    kopf.on.login(registry=registry)(_login)
    for kind in kinds:
        resource = (kind.group, kind.version, kind.plural)
        if kind.selector:
            settings.watching.label_selectors[resource] = kind.selector
        kopf.on.event(*resource, id=f"watch-{kind.plural}", registry=registry)(_teller(told))
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _login(**context: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)


def _teller(told: Told) -> Callable[..., Any]:
    async def handler(event: kopf.RawEvent, **_: Any) -> None:
        told(event["type"], dict(event["object"]))

    return handler
