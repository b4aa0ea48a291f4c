"""The cluster -> a frozen snapshot of one input."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.problems import problems
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.scaling import State
from distributed_input_operator.budget.ledger import Ledger
from distributed_input_operator.controller.dispatchers import Dispatchers
from distributed_input_operator.controller.tokens import Tokens
from distributed_input_operator.kube.api import Api, ApiError, Json
from distributed_input_operator.kube.apply import failure
from distributed_input_operator.kube.kinds import CONFIG_MAP
from distributed_input_operator.kube.store import InputKey, Store
from distributed_input_operator.objects.children import digest
from distributed_input_operator.objects.dispatcher import dispatcher_port
from distributed_input_operator.objects.pod_state import parse_pod
from distributed_input_operator.objects.snapshot import Failure, Settings, Snapshot


class Unusable(Exception):
    """The input's spec is one that the API server took and we cannot use."""


@dataclass(frozen=True)
class Sources:
    """Where the facts about inputs come from."""

    api: Api
    store: Store
    tokens: Tokens
    dispatchers: Dispatchers
    settings: Settings
    ledger: Ledger = field(default_factory=Ledger)
    """What the cluster's budgets leave for each input."""
    scaled: dict[InputKey, tuple[str, State]] = field(default_factory=dict)
    """Of each input's uid, what autoscaling left last. A new leader goes on from the status."""


async def observe(sources: Sources, key: InputKey) -> Snapshot | None:
    """All that is known of an input; None where it is gone or on its way out.

    Raises Unusable, OwnerGone where the input is deleted and the store still has it, and ApiError
    where something could not be read that may be read later.
    """
    found = sources.store.input(key)
    if found is None or "deletionTimestamp" in found["metadata"]:
        return None
    resource = parsed(found)
    children = sources.store.children(key)
    snapshot = Snapshot(
        resource=resource,
        status=Status.model_validate(found.get("status") or {}),
        settings=sources.settings,
        objects={place: obj for place, obj in children.items() if place[0] != "Pod"},
        pods=tuple(parse_pod(obj) for place, obj in children.items() if place[0] == "Pod"),
        scaled=_scaled(sources, key, resource.metadata.uid or ""),
    )
    snapshot = await _with_code(sources.api, snapshot)
    return await _with_measurements(sources, key, snapshot)


def _scaled(sources: Sources, key: InputKey, uid: str) -> State | None:
    of, state = sources.scaled.get(key, ("", None))
    return state if of == uid else None


def parsed(found: Json) -> DistributedInput:
    """The typed resource. Raises Unusable, with what to change."""
    try:
        # What we do not know is of a newer definition: the API server has checked it.
        return DistributedInput.model_validate({**found, "status": {}}, extra="ignore")
    except ValidationError as error:
        raise Unusable("; ".join(map(str, problems(error)))) from None


async def _with_code(api: Api, snapshot: Snapshot) -> Snapshot:
    name = snapshot.resource.spec.dataset.source.config_map
    if name is None:
        return snapshot
    found = await api.get(CONFIG_MAP, snapshot.resource.metadata.namespace or "", name)
    if found is not None:
        content = {key: found.get(key) for key in ("data", "binaryData")}
        return replace(snapshot, code=digest(content))
    text = f"spec.dataset.source.configMap: there is no ConfigMap {name}: create it"
    return replace(snapshot, missing=(*snapshot.missing, Failure("CodeMissing", text)))


async def _with_measurements(sources: Sources, key: InputKey, snapshot: Snapshot) -> Snapshot:
    resource = snapshot.resource
    try:
        token = await sources.tokens.token(resource, young=snapshot.young)
    except ApiError as error:
        return replace(snapshot, missing=(*snapshot.missing, failure(error)))
    ready = [one for one in snapshot.of(names.DISPATCHER) if one.ready and one.ip]
    if not ready:
        return snapshot
    host = f"[{ready[0].ip}]" if ":" in ready[0].ip else ready[0].ip
    address = f"{host}:{dispatcher_port(resource)}"
    measured = await sources.dispatchers.ask(key, resource.metadata.uid or "", address, token)
    return replace(snapshot, measured=measured)
