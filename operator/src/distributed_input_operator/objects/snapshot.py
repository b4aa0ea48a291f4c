"""The observed state of one input at one moment, from which the operator plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.policy import NOTHING, Amount
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.budget.pod_requests import requested_amount

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON."""
Key = tuple[str, str]
"""Kind and name of an object in the input's namespace."""
AUTHORITY_UNUSABLE = "AuthorityUnusable"
"""Type of the condition that no authority can be signed, and reason why a new input has none."""
CODE_MISSING = "CodeMissing"
"""Reason of the failure that the ConfigMap with the entry point's code does not exist."""
CLASS_REFUSED = "PriorityClassRefused"
"""Reason of a priority class that the input may not use. It counts as none."""
CODE_REFUSED = "CodeRefused"
"""Reason of the failure that the InputPolicy does not allow the entry point's code."""


@dataclass(frozen=True)
class Settings:
    """The operator's command-line settings that plans depend on."""

    worker_image: str
    """Default image of workers."""
    sidecar_image: str
    """Default image of sidecars and dispatchers."""
    namespace: str = "distributed-input"
    """The operator's namespace. NetworkPolicies allow calls from it to dispatchers."""
    pull_policy: str = ""
    """Pull policy of the default images. Empty: the default of Kubernetes."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in each input's namespace, for pulling images of dispatchers and workers."""
    operator_class: str = ""
    """The class of inputs that this operator manages. Empty: those without a class."""
    revision: str = "1"
    """Names what these settings and this release make of pod templates. It differs from that of
    every operator with other templates."""
    resources: tuple[str, ...] = ()
    """Names of the resources besides CPU and memory that the cluster's policy limits."""
    modules: tuple[str, ...] = ()
    """Modules whose functions may be entry points, by the cluster's policy. Empty: all."""


@dataclass(frozen=True)
class Pod:
    """A pod of the input."""

    name: str
    component: str
    """dispatcher or worker"""
    ip: str = ""
    created: str = ""
    """RFC 3339"""
    ready: bool = False
    terminating: bool = False
    """It is being deleted, or has ended."""
    ends_by: str = ""
    """When it should have ended, RFC 3339. Empty: it is not being deleted."""
    ended: bool = False
    """All its containers have ended, so it uses no resources."""
    deletion_cost: int | None = None
    unschedulable: str = ""
    """The scheduler's message if it found no node. Otherwise empty."""
    failing: str = ""
    """Why a container fails repeatedly or cannot start. Otherwise empty."""
    takes: Amount = NOTHING
    """Requested resources, which count in budgets."""


@dataclass(frozen=True)
class Failure:
    """An error in the input's objects: a refused request, or a missing object."""

    reason: str
    """One CamelCase word."""
    message: str
    """What is wrong and what to do."""
    passing: bool = False
    """Whether the operator retries, because the same request may succeed later."""

    @property
    def final(self) -> bool:
        """Whether the user must change something. A missing ConfigMap may be created later."""
        return not self.passing and self.reason != CODE_MISSING


@dataclass(frozen=True)
class Snapshot:
    """An input, its child objects, and the measurements of its dispatcher."""

    resource: DistributedInput
    status: Status
    """The status in the cluster."""
    settings: Settings
    objects: Mapping[Key, Manifest]
    """The child objects in the cluster."""
    pods: tuple[Pod, ...] = ()
    code: str = ""
    """Hash of the ConfigMap with the entry point's code. Empty if the input uses none."""
    missing: tuple[Failure, ...] = ()
    """Objects that the input refers to and that do not exist."""
    measured: Measurement | None = None
    """None if the dispatcher has not sent enough samples yet."""
    unmeasured: Failure | None = None
    """Why the operator does not use the dispatcher's answers. None: it does, or there are none."""
    secret: Manifest | None = None
    """The Secret with the input's token or private keys. None: it was created recently."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """The certificates of an encrypted input: data of its ConfigMap."""
    renew_seconds: float = math.inf
    """Time until a certificate is due for renewal."""
    unsigned: Failure | None = None
    """Why the input's authority cannot be signed. It stays in use. None: it can be signed."""
    namespace_labels: Mapping[str, str] | None = None
    """Labels of the input's namespace. None: unknown, or not needed."""
    scaled: AutoscalingState | None = None
    """Latest state of autoscaling. The status has it too, but is written only every 30 s. None:
    use the state in the status."""
    live_seconds: float = 30.0
    """Minimum seconds between two writes of values that change all the time."""

    @property
    def name(self) -> str:
        """The input's name."""
        return self.resource.metadata.name

    @property
    def young(self) -> bool:
        """Whether no child was created yet: none is known, and no status was written."""
        return not self.objects and not self.status.conditions

    def live(self, kind: str, name: str) -> Manifest:
        """Return a child object in the cluster, or an empty mapping if it does not exist."""
        return self.objects.get((kind, name), {})

    def of(self, component: str) -> tuple[Pod, ...]:
        """Return the pods of one component that are not terminating."""
        return tuple(p for p in self.pods if p.component == component and not p.terminating)


_IMAGE_ERRORS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_CONFIG_ERRORS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_ENDED_PHASES = ("Failed", "Succeeded")
_MAX_LINE_LENGTH = 300


def parse_pod(obj: Mapping[str, Any], resources: Sequence[str] = ()) -> Pod:
    """Return the state of a pod. Fields that a new pod does not have yet are empty.

    `resources`: names of those besides CPU and memory that budgets limit.
    """
    meta, status = obj["metadata"], obj.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions", [])}
    cost = (meta.get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost")
    ended = status.get("phase") in _ENDED_PHASES
    return Pod(
        name=meta["name"],
        component=(meta.get("labels") or {}).get(names.COMPONENT_LABEL, ""),
        ip=status.get("podIP", ""),
        created=meta.get("creationTimestamp", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating="deletionTimestamp" in meta or ended,
        ends_by="" if ended else meta.get("deletionTimestamp", ""),
        ended=ended,
        deletion_cost=int(cost) if cost and cost.lstrip("-").isdigit() else None,
        unschedulable=_scheduling_error(status, conditions),
        failing=next(filter(None, map(_failure, _containers(status))), ""),
        takes=requested_amount(obj.get("spec") or {}, resources),
    )


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the states of all containers, in the order in which they start."""
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _scheduling_error(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> str:
    """Return the scheduler's message if it found no node for a pending pod, otherwise ""."""
    if status.get("phase", "Pending") != "Pending":
        return ""
    scheduled = conditions.get("PodScheduled", {})
    return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""


def _failure(container: Mapping[str, Any]) -> str:
    """Return why a container fails, in one line, or "" if it runs or is starting."""
    name, waiting = container["name"], container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in _IMAGE_ERRORS | _CONFIG_ERRORS:
        return f"container {name}: {reason}: {waiting.get('message', '')}"[:_MAX_LINE_LENGTH]
    if reason != "CrashLoopBackOff":
        return ""
    last = container.get("lastState", {}).get("terminated", {})
    lines = str(last.get("message") or last.get("reason") or "").strip().splitlines() or [""]
    count, status = container.get("restartCount", 0), last.get("exitCode", "?")
    text = f"container {name} ended {count} times, last with exit status {status}"
    return f"{text}: {lines[-1][-_MAX_LINE_LENGTH:]}"
