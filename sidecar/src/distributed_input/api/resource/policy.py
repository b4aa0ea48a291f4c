"""The model of the resource `InputPolicy`: cluster-scoped, with one object named `cluster`.

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

The custom resource definition is generated from these models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api.resource.base import Section, cel, list_map
from distributed_input.api.resource.scalars import (
    Anything,
    Cost,
    ModuleName,
    Namespace,
    PriorityClassName,
    Quantity,
    Weight,
    cel_number,
    problem,
    quantity,
)
from distributed_input.api.resource.selectors import LabelSelector

POLICY_KIND = "InputPolicy"
POLICY_PLURAL = "inputpolicies"
POLICY_NAME = "cluster"
"""The name of the only object: two policies could contradict each other."""

Amount = tuple[int, ...]
"""Number of workers, CPU in thousandths, memory in bytes, then other resources in whole units."""
UNLIMITED = 1 << 62
NO_LIMIT: Amount = (UNLIMITED, UNLIMITED, UNLIMITED)
NOTHING: Amount = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits and guarantees for the workers of a group of inputs."""

    name: str
    limits: Amount = NO_LIMIT
    guaranteed: Amount = NOTHING


BudgetName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63, examples=["research"])
]


class Amounts(Section):
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

    def amount(self, default: int, others: Sequence[str] = ()) -> Amount:
        """Return the values, with `default` for each field that is not set.

        Args:
            default: value of a field that is not set.
            others: names of the other resources, in the order of the result.
        """
        units = {"cpu": 1000, "memory": 1, **dict.fromkeys(others, 1)}
        found = {name: self.resources.get(name) for name in units}
        return (
            default if self.workers is None else self.workers,
            *(
                default if one is None else min(UNLIMITED, int(units[name] * quantity(one)))
                for name, one in found.items()
            ),
        )


def _has_labels(selector: str) -> str:
    labels, expressions = f"{selector}.matchLabels", f"{selector}.matchExpressions"
    return (
        f"has({selector}) && (has({labels}) && size({labels}) > 0 || "
        f"has({expressions}) && size({expressions}) > 0)"
    )


class BudgetSpec(Section):
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
    limits: Amounts = Field(
        default=Amounts(),
        description="Maximum for all inputs in the budget. Default: no limits.",
    )
    guaranteed: Amounts = Field(
        default=Amounts(),
        description="Workers that these inputs get before other inputs. An unused part is lent to "
        "other inputs, whose workers drain when it is needed. Default: none.",
    )

    @model_validator(mode="after")
    def _check_guarantees(self) -> BudgetSpec:
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

    def covers(
        self,
        namespace: str,
        labels: Mapping[str, str] | None,
        namespace_labels: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether this budget selects an input. With unknown labels (None), it may.

        Args:
            namespace: the input's namespace.
            labels: the input's labels.
            namespace_labels: the labels of its namespace.
        """
        if self.namespaces and namespace not in self.namespaces:
            return False
        return self.namespace_selector.matches(namespace_labels) and self.selector.matches(labels)

    def budget(self, others: Sequence[str] = ()) -> Budget:
        """Return the limits and guarantees as amounts. `others`: names of other resources."""
        limits, guaranteed = self.limits.amount(UNLIMITED, others), self.guaranteed
        return Budget(self.name, limits, guaranteed.amount(0, others))


class PriorityClassSpec(Section):
    """A priority that inputs can name."""

    name: PriorityClassName = Field(
        description="Name of the class in spec.trainers.priorityClass of inputs. Required."
    )
    value: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        description="Inputs with a higher value get all workers that they need before other inputs "
        "get more than their minimum. Required.",
        examples=[100],
    )
    namespaces: list[Namespace] = Field(
        default=[],
        description="Namespaces of the inputs that may use the class. Default: all namespaces.",
    )


class CapsSpec(Section):
    """Maximums of what inputs declare about themselves. A higher value counts as the maximum."""

    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = Field(
        default=None,
        description="Maximum of spec.trainers.priority, which counts without priorityClasses. "
        "Default: no maximum.",
        examples=[0],
    )
    weight: Weight | None = Field(
        default=None,
        description="Maximum of spec.trainers.weight, from 1m to 1000. Default: no maximum.",
        examples=["1"],
    )
    accelerators: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Maximum number of accelerators of one input, of all its trainers together. "
        "Default: no maximum.",
        examples=[64],
    )
    min_replicas: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="Maximum of spec.workers.autoscaling.minReplicas. Default: no maximum.",
        examples=[2],
    )

    def limited(
        self, name: Literal["priority", "weight", "accelerators", "min_replicas"], declared: float
    ) -> float:
        """Return what counts of a declared value."""
        cap = getattr(self, name)
        return declared if cap is None else min(declared, float(quantity(str(cap))))


class PolicySpec(Section):
    """The rules for sharing workers when not all inputs can get what they need."""

    budgets: list[BudgetSpec] = Field(
        default=[],
        description="Budgets of groups of inputs. An input can be in several; each of them "
        "applies. Default: none.",
        json_schema_extra=list_map("name"),
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
        json_schema_extra=list_map("name"),
    )
    caps: CapsSpec = Field(
        default=CapsSpec(),
        description="Maximums of what inputs declare about themselves. Default: none.",
    )
    modules: list[ModuleName] = Field(
        default=[],
        description="Modules whose functions may be entry points, each with all modules below it. "
        "Default: all modules.",
    )

    @model_validator(mode="after")
    def _check_names_are_unique(self) -> PolicySpec:
        for field, kind, found in (
            ("budgets", "budget", self.budgets),
            ("priorityClasses", "class", self.priority_classes),
        ):
            for name, count in Counter(one.name for one in found).items():
                if count > 1:
                    raise problem(f"{name!r} is used twice: give each {kind} its own name", field)
        return self

    @property
    def resource_names(self) -> tuple[str, ...]:
        """The names of the resources besides CPU and memory that budgets limit."""
        found = [{*one.limits.resources, *one.guaranteed.resources} for one in self.budgets]
        return tuple(sorted(set().union(*found) - {"cpu", "memory"}))

    @property
    def selects_namespaces(self) -> bool:
        """Whether a budget depends on labels of namespaces."""
        return not all(one.namespace_selector.is_empty for one in self.budgets)

    def budgets_of(
        self,
        namespace: str,
        labels: Mapping[str, str] | None,
        namespace_labels: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """Return the names of an input's budgets. With unknown labels (None), all that may be."""
        own = [one for one in self.budgets if one.applies_to == "SelectedInputs"]
        found = [one.name for one in own if one.covers(namespace, labels, namespace_labels)]
        unknown = labels is None or (namespace_labels is None and self.selects_namespaces)
        if not found or unknown:
            found += [one.name for one in self.budgets if one.applies_to == "OtherInputs"]
        return tuple(found)

    def classes_of(self, namespace: str) -> dict[str, int]:
        """Return the priority classes that inputs of a namespace may use, and their values."""
        return {
            one.name: one.value
            for one in self.priority_classes
            if not one.namespaces or namespace in one.namespaces
        }

    def priority(self, namespace: str, name: str, declared: int) -> int:
        """Return what counts as an input's priority.

        Args:
            namespace: the input's namespace.
            name: its priority class. Empty: none. A class that it may not use counts as none.
            declared: the number that it declares. It counts if the policy has no classes.
        """
        if self.priority_classes:
            return self.classes_of(namespace).get(name, 0)
        return int(self.caps.limited("priority", declared))

    def allows_module(self, name: str) -> bool:
        """Return whether functions of this module may be entry points."""
        return not self.modules or any(f"{name}.".startswith(f"{one}.") for one in self.modules)


class InputPolicy(Section):
    """The cluster's policy for sharing input workers."""

    api_version: Literal["distributed-input.dev/v1beta1"]
    kind: Literal["InputPolicy"]
    metadata: Anything
    spec: PolicySpec = Field(default=PolicySpec(), description="The desired policy.")
    status: Anything = Field(default={}, description="Written by the operator.")
