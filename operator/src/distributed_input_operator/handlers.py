"""The watches, by kopf: the only file that imports it. Every body is one call.

Low-level events alone: no finalizers, no annotations, nothing that kopf would write. The index
handlers keep nothing; they are there because kopf calls no event handler before all of them have
seen everything that exists, so that the first look at an input sees all of its children.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import kopf

from distributed_input_operator.kinds import Kind
from distributed_input_operator.store import Json

Listed = Callable[[Json], None]
Told = Callable[[str | None, Json], None]

_PAGE = 250


async def watch(
    kinds: Sequence[Kind], namespaces: Sequence[str], listed: Listed, told: Told
) -> None:
    """Watch `kinds` until cancelled, in `namespaces`, or everywhere where there are none.

    `listed` gets each object as soon as it is known; `told` gets each event (None: it was there
    before, or ADDED, MODIFIED, DELETED) once everything is listed.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.queueing.idle_timeout = 1.0
    settings.watching.chunk_size = _PAGE
    # Or it would need the right to watch all definitions and namespaces.
    settings.scanning.disabled = True
    kopf.on.login(registry=registry)(_login)
    for kind in kinds:
        resource = (kind.group, kind.version, kind.plural)
        if kind.selector:
            settings.watching.label_selectors[resource] = kind.selector
        kopf.index(*resource, id=f"list-{kind.plural}", registry=registry)(_lister(listed))
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


def _lister(listed: Listed) -> Callable[..., Any]:
    async def handler(body: kopf.Body, **_: Any) -> None:
        listed(dict(body))

    return handler


def _teller(told: Told) -> Callable[..., Any]:
    async def handler(event: kopf.RawEvent, **_: Any) -> None:
        told(event["type"], dict(event["object"]))

    return handler
