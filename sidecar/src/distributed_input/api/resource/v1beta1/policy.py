"""The model of the resource `InputPolicy`, apiVersion distributed-input.dev/v1beta1.

    apiVersion: distributed-input.dev/v1beta1
    kind: InputPolicy
    metadata: {name: cluster}
    spec:
      budgets:
        - {name: everything, limits: {workers: 200, resources: {cpu: 400}}}
        - name: research
          namespaceSelector: {matchLabels: {team: vision}}
          guaranteed: {workers: 60}
      stallCosts: {nvidia-h100: 4, tpu-v5e: 1200m}

The operator reads v1alpha1: see `conversion.policy`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from distributed_input.api.resource.base import Section, StatusSection, cel
from distributed_input.api.resource.policy import (
    BudgetName,
    CapsSpec,
    PriorityClassSpec,
    check_unique,
)
from distributed_input.api.resource.policy_status import PolicyStatus
from distributed_input.api.resource.scalars import (
    Anything,
    ModuleName,
    Namespace,
    Quantity,
    cel_number,
    problem,
    quantity,
)
from distributed_input.api.resource.v1beta1.quantities import Cost, Weight
from distributed_input.api.resource.v1beta1.selectors import LabelSelector

_BY_NAME: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class BetaAmounts(Section):
    """A number of worker pods and their total requests. Only fields that are set apply."""

    workers: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Number of worker pods.", examples=[60]
    )
    resources: dict[str, Quantity] = Field(
        default={},
        description="Requests of dispatchers and workers, by resource: cpu, memory, or any other, "
        "such as accelerators. Default: none.",
        examples=[{"cpu": "400", "memory": "2Ti", "nvidia.com/gpu": "8"}],
    )


def _has_labels(selector: str) -> str:
    labels, expressions = f"{selector}.matchLabels", f"{selector}.matchExpressions"
    return (
        f"has({selector}) && (has({labels}) && size({labels}) > 0 || "
        f"has({expressions}) && size({expressions}) > 0)"
    )


class BetaBudget(Section):
    """Limits and guarantees for the workers of a group of inputs."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "!(has(self.guaranteed) && has(self.limits) && has(self.guaranteed.workers) && "
                "has(self.limits.workers)) || self.guaranteed.workers <= self.limits.workers",
                "guaranteed.workers is greater than limits.workers: lower guaranteed.workers",
            ),
            (
                "!(has(self.guaranteed) && has(self.limits) && has(self.guaranteed.resources) && "
                "has(self.limits.resources)) || self.guaranteed.resources.all(one, "
                "!(one in self.limits.resources) || "
                f"{cel_number('self.guaranteed.resources[one]')} <= "
                f"{cel_number('self.limits.resources[one]')})",
                "guaranteed.resources is greater than limits.resources: lower guaranteed.resources",
            ),
            (
                "self.appliesTo != 'OtherInputs' || !(has(self.namespaces) && "
                "size(self.namespaces) > 0 || "
                f"{_has_labels('self.namespaceSelector')} || {_has_labels('self.selector')})",
                "appliesTo OtherInputs excludes namespaces, namespaceSelector and selector: remove "
                "them, or use another budget",
            ),
        )
    )

    name: BudgetName = Field(
        description="Name of the budget in status messages and metrics. Required."
    )
    applies_to: Literal["SelectedInputs", "OtherInputs"] = Field(
        default="SelectedInputs",
        description="Inputs in the budget. SelectedInputs: those that namespaces, "
        "namespaceSelector and selector select together; all inputs if none of these is set. "
        "OtherInputs: those that no other budget selects. Default: SelectedInputs.",
    )
    namespaces: list[Namespace] = Field(
        default=[],
        description="Names of the inputs' namespaces. Needs no right to read namespaces. "
        "Default: all namespaces.",
    )
    namespace_selector: LabelSelector = Field(
        default=LabelSelector(),
        description="Labels of the inputs' namespaces. Default: any labels.",
    )
    selector: LabelSelector = Field(
        default=LabelSelector(),
        description="Labels of the inputs. Users who may change an input can change them. "
        "Default: any labels.",
    )
    limits: BetaAmounts = Field(
        default=BetaAmounts(),
        description="Maximum for all inputs in the budget. Default: no limits.",
    )
    guaranteed: BetaAmounts = Field(
        default=BetaAmounts(),
        description="Workers that these inputs get before other inputs. An unused part is lent to "
        "other inputs, whose workers drain when it is needed. Default: none.",
    )

    @model_validator(mode="after")
    def _check_guarantees(self) -> BetaBudget:
        low, high = self.guaranteed, self.limits
        exceeded = [
            ("resources", name)
            for name in low.resources
            if name in high.resources
            and quantity(low.resources[name]) > quantity(high.resources[name])
        ]
        if low.workers is not None and high.workers is not None and low.workers > high.workers:
            raise problem(
                "is greater than limits.workers: lower guaranteed.workers", "guaranteed", "workers"
            )
        for path in exceeded:
            raise problem(f"is greater than limits.{'.'.join(path)}: lower it", "guaranteed", *path)
        selects = self.namespaces or not (
            self.namespace_selector.is_empty and self.selector.is_empty
        )
        if self.applies_to == "OtherInputs" and selects:
            raise problem(
                "OtherInputs excludes namespaces, namespaceSelector and selector: remove them, or "
                "use another budget",
                "appliesTo",
            )
        return self


class BetaCaps(CapsSpec):
    """Maximums of what inputs declare about themselves. A higher value counts as the maximum."""

    weight: Weight | None = Field(  # type: ignore[assignment] # a quantity
        default=None,
        description="Maximum of spec.trainers.weight, from 1m to 1000. Default: no maximum.",
        examples=["1"],
    )


class BetaPolicySpec(Section):
    """The rules for sharing workers when not all inputs can get what they need."""

    budgets: list[BetaBudget] = Field(
        default=[],
        description="Budgets of groups of inputs. An input can be in several; each of them "
        "applies. Default: none.",
        json_schema_extra=_BY_NAME,
    )
    stall_costs: dict[str, Cost] = Field(
        default={},
        description="Cost of one waiting accelerator, in any unit, from 0 to 1M, by the name in "
        "spec.trainers.accelerator of the inputs. Default: cost 1 for each name.",
        examples=[{"nvidia-h100": "4"}],
    )
    priority_classes: list[PriorityClassSpec] = Field(
        default=[],
        description="The priorities that inputs can have. With classes, spec.trainers.priority of "
        "inputs does not count. Default: no classes.",
        json_schema_extra=_BY_NAME,
    )
    caps: BetaCaps = Field(
        default=BetaCaps(),
        description="Maximums of what inputs declare about themselves. Default: none.",
    )
    modules: list[ModuleName] = Field(
        default=[],
        description="Modules whose functions may be entry points, each with all modules below it. "
        "Default: all modules.",
    )

    @model_validator(mode="after")
    def _check_names_are_unique(self) -> BetaPolicySpec:
        check_unique("budgets", "budget", [one.name for one in self.budgets])
        check_unique("priorityClasses", "class", [one.name for one in self.priority_classes])
        return self


class BetaPolicy(Section):
    """The cluster's policy for sharing input workers."""

    api_version: Literal["distributed-input.dev/v1beta1"]
    kind: Literal["InputPolicy"]
    metadata: Anything
    spec: BetaPolicySpec = Field(default=BetaPolicySpec(), description="The desired policy.")
    status: Anything = Field(default={}, description="Written by the operator.")


class BetaBudgetStatus(StatusSection):
    """The use of a budget."""

    name: str = Field(description="Name of the budget.")
    inputs: int = Field(default=0, description="Number of inputs in the budget.")
    workers: int = Field(
        default=0, description="Number of worker pods, including those that are stopping."
    )
    requested: int = Field(default=0, description="Number of workers that the inputs request.")
    resources: dict[str, str] = Field(
        default={},
        description="Requests of dispatchers and workers: CPU, memory, and the other resources "
        "that budgets limit.",
    )


class BetaPolicyStatus(PolicyStatus):
    """The observed state, written by the operator at most every 30 s."""

    budgets: list[BetaBudgetStatus] = Field(  # type: ignore[assignment] # other fields
        default=[], description="Use of each budget, in the order of the spec."
    )
