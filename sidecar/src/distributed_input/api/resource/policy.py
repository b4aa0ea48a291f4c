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

from pydantic import Field, model_validator

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


_WITH_VALUES = ("In", "NotIn")


class LabelRequirement(Section):
    """A requirement on one label."""

    model_config = cel(
        (
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "operators In and NotIn need values, and Exists and DoesNotExist exclude them: "
            "correct operator, or add or remove values",
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317)] = Field(examples=["team"])
    """Key of the label. Required."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In: the label has one of the values. NotIn: it has none of them, or does not exist. Exists
    and DoesNotExist: whether it exists, with any value. Required."""
    values: list[Annotated[str, Field(max_length=63)]] = Field(default=[])
    """Values of the label. Required for In and NotIn."""

    @model_validator(mode="after")
    def _check_values(self) -> LabelRequirement:
        if (self.operator in _WITH_VALUES) != bool(self.values):
            needs = "needs" if self.operator in _WITH_VALUES else "excludes"
            raise problem(f"operator {self.operator} {needs} values", "values")
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
        return self.key not in labels


class LabelSelector(Section):
    """Labels of objects. All requirements must be met. Without any, all objects match."""

    match_labels: dict[str, str] = Field(default={}, examples=[{"team": "vision"}])
    """Labels with their values. Default: any labels."""
    match_expressions: list[LabelRequirement] = Field(default=[])
    """Requirements on labels. Default: none."""

    @property
    def is_empty(self) -> bool:
        """Whether all objects match."""
        return not self.match_labels and not self.match_expressions

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether an object matches. With unknown labels (None), it may."""
        return labels is None or (
            all(labels.get(key) == value for key, value in self.match_labels.items())
            and all(one.matches(labels) for one in self.match_expressions)
        )


class Amounts(Section):
    """A number of worker pods and their total requests. Only fields that are set apply."""

    workers: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(default=None, examples=[60])
    """Number of worker pods."""
    resources: dict[str, Quantity] = Field(
        default={}, examples=[{"cpu": "400", "memory": "2Ti", "nvidia.com/gpu": "8"}]
    )
    """Requests of dispatchers and workers, by resource: cpu, memory, or any other, such as
    accelerators. Default: none."""

    def amount(self, default: int, others: Sequence[str] = ()) -> Amount:
        """Return the values, with `default` for each field that is not set."""
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

    model_config = cel(
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

    name: BudgetName
    """Name of the budget in status messages and metrics. Required."""
    applies_to: Literal["SelectedInputs", "OtherInputs"] = "SelectedInputs"
    """Inputs in the budget. SelectedInputs: those that namespaces, namespaceSelector and selector
    select together; all inputs if none of these is set. OtherInputs: those that no other budget
    selects. Default: SelectedInputs."""
    namespaces: list[Namespace] = Field(default=[])
    """Names of the inputs' namespaces. Needs no right to read namespaces. Default: all
    namespaces."""
    namespace_selector: LabelSelector = LabelSelector()
    """Labels of the inputs' namespaces. Default: any labels."""
    selector: LabelSelector = LabelSelector()
    """Labels of the inputs. Users who may change an input can change them. Default: any labels."""
    limits: Amounts = Amounts()
    """Maximum for all inputs in the budget. Default: no limits."""
    guaranteed: Amounts = Amounts()
    """Workers that these inputs get before other inputs. An unused part is lent to other inputs,
    whose workers drain when it is needed. Default: none."""

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
        """Whether this budget selects an input. With unknown labels (None), it may."""
        if self.namespaces and namespace not in self.namespaces:
            return False
        return self.namespace_selector.matches(namespace_labels) and self.selector.matches(labels)

    def budget(self, others: Sequence[str] = ()) -> Budget:
        """Return the limits and guarantees as amounts. `others`: names of other resources."""
        limits, guaranteed = self.limits.amount(UNLIMITED, others), self.guaranteed
        return Budget(self.name, limits, guaranteed.amount(0, others))


class PriorityClassSpec(Section):
    """A priority that inputs can name."""

    name: PriorityClassName
    """Name of the class in spec.trainers.priorityClass of inputs. Required."""
    value: Annotated[int, Field(ge=-1000, le=1000)] = Field(examples=[100])
    """Inputs with a higher value get all workers that they need before other inputs get more than
    their minimum. Required."""
    namespaces: list[Namespace] = Field(default=[])
    """Namespaces of the inputs that may use the class. Default: all namespaces."""


class CapsSpec(Section):
    """Maximums of what inputs declare about themselves. A higher value counts as the maximum."""

    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = Field(default=None, examples=[0])
    """Maximum of spec.trainers.priority, which counts without priorityClasses. Default: no
    maximum."""
    weight: Weight | None = Field(default=None, examples=["1"])
    """Maximum of spec.trainers.weight, from 1m to 1000. Default: no maximum."""
    accelerators: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, examples=[64]
    )
    """Maximum number of accelerators of one input, of all its trainers together. Default: no
    maximum."""
    min_replicas: Annotated[int, Field(ge=1, le=1000)] | None = Field(default=None, examples=[2])
    """Maximum of spec.workers.autoscaling.minReplicas. Default: no maximum."""

    def limited(
        self, name: Literal["priority", "weight", "accelerators", "min_replicas"], declared: float
    ) -> float:
        """Return what counts of a declared value."""
        cap = getattr(self, name)
        return declared if cap is None else min(declared, float(quantity(str(cap))))


class PolicySpec(Section):
    """The rules for sharing workers when not all inputs can get what they need."""

    budgets: list[BudgetSpec] = Field(default=[], json_schema_extra=list_map("name"))
    """Budgets of groups of inputs. An input can be in several; each of them applies. Default:
    none."""
    stall_costs: dict[str, Cost] = Field(default={}, examples=[{"nvidia-h100": "4"}])
    """Cost of one waiting accelerator, in any unit, from 0 to 1M, by the name in
    spec.trainers.accelerator of the inputs. Default: cost 1 for each name."""
    priority_classes: list[PriorityClassSpec] = Field(
        default=[], json_schema_extra=list_map("name")
    )
    """The priorities that inputs can have. With classes, spec.trainers.priority of inputs does not
    count. Default: no classes."""
    caps: CapsSpec = CapsSpec()
    """Maximums of what inputs declare about themselves. Default: none."""
    modules: list[ModuleName] = Field(default=[])
    """Modules whose functions may be entry points, each with all modules below it. Default: all
    modules."""

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

        The declared number counts if the policy has no classes. A class that it may not use counts
        as none.
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
    spec: PolicySpec = PolicySpec()
    """The desired policy."""
    status: Anything = Field(default={})
    """Written by the operator."""
