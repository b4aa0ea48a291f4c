"""The model of the resource `InputPolicy`: cluster-scoped, with one object named `cluster`.

    apiVersion: distributed-input.dev/v1alpha1
    kind: InputPolicy
    metadata: {name: cluster}
    spec:
      budgets:
        - {name: everything, limits: {workers: 200, cpu: 400}}
        - {name: research, namespaces: [vision, speech], guaranteed: {workers: 60}}
      stallCosts: {nvidia-h100: 4, tpu-v5e: 1.2}

The custom resource definition is generated from these models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import (
    Anything,
    ModuleName,
    Namespace,
    PriorityClassName,
    Quantity,
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


class Amounts(Section):
    """A number of worker pods and their total requests. Only fields that are set apply."""

    workers: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Number of worker pods.", examples=[60]
    )
    cpu: Quantity | None = Field(
        default=None, description="CPU requests of dispatchers and workers.", examples=["400"]
    )
    memory: Quantity | None = Field(
        default=None, description="Memory requests of dispatchers and workers.", examples=["2Ti"]
    )
    resources: dict[str, Quantity] = Field(
        default={},
        description="Requests of other resources, by name, such as accelerators. Default: none.",
        examples=[{"nvidia.com/gpu": "8"}],
    )

    def amount(self, default: int, others: Sequence[str] = ()) -> Amount:
        """Return the values, with `default` for each field that is not set.

        Args:
            default: value of a field that is not set.
            others: names of the other resources, in the order of the result.
        """
        values = [(self.cpu, 1000), (self.memory, 1)]
        values += [(self.resources.get(name), 1) for name in others]
        return (
            default if self.workers is None else self.workers,
            *(
                default if one is None else min(UNLIMITED, int(unit * quantity(one)))
                for one, unit in values
            ),
        )


def _within_limit(resource: str) -> tuple[str, str]:
    """Return the rule that the guarantee of a resource is at most its limit."""
    left, right = f"self.guaranteed.{resource}", f"self.limits.{resource}"
    both = "has(self.guaranteed) && has(self.limits) && " + " && ".join(
        f"has({one})" for one in (left, right)
    )
    comparison = f"{left} <= {right}"
    if resource != "workers":
        comparison = f"{cel_number(left)} <= {cel_number(right)}"
    return (
        f"!({both}) || {comparison}",
        f"guaranteed.{resource} is greater than limits.{resource}: lower guaranteed.{resource}",
    )


_DEFAULT_WITHOUT_SELECTORS = (
    "!(has(self.default) && self.default) || !(has(self.namespaces) && size(self.namespaces) > 0 "
    "|| has(self.namespaceSelector) && size(self.namespaceSelector) > 0 "
    "|| has(self.selector) && size(self.selector) > 0)",
    "default excludes namespaces, namespaceSelector and selector: remove them, or use another "
    "budget",
)


class BudgetSpec(Section):
    """Limits and guarantees for the workers of a group of inputs."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            *map(_within_limit, ("workers", "cpu", "memory")), _DEFAULT_WITHOUT_SELECTORS
        )
    )

    name: BudgetName = Field(
        description="Name of the budget in status messages and metrics. Required."
    )
    namespaces: list[Namespace] = Field(
        default=[],
        description="Namespaces of the inputs in the budget. Default: all namespaces.",
    )
    namespace_selector: dict[str, str] = Field(
        default={},
        description="Labels of the namespaces of the inputs in the budget. Default: any labels.",
        examples=[{"team": "vision"}],
    )
    selector: dict[str, str] = Field(
        default={},
        description="Labels of the inputs in the budget. Users who may change an input can change "
        "them. Default: any labels.",
    )
    default: bool = Field(
        default=False,
        description="Put the inputs that no other budget selects into this budget. It has no "
        "selectors and no namespaces. Default: false.",
    )
    limits: Amounts = Field(
        default=Amounts(), description="Maximum for all inputs in the budget. Default: no limits."
    )
    guaranteed: Amounts = Field(
        default=Amounts(),
        description="Workers that these inputs get before other inputs. An unused part is lent to "
        "other inputs, whose workers drain when it is needed. Default: none.",
    )

    @model_validator(mode="after")
    def _check_guarantees(self) -> BudgetSpec:
        others = tuple(self.guaranteed.resources)
        names = ("workers", "cpu", "memory", *(f"resources[{one!r}]" for one in others))
        guaranteed = self.guaranteed.amount(0, others)
        limits = self.limits.amount(UNLIMITED, others)
        for name, low, high in zip(names, guaranteed, limits, strict=True):
            if low > high:
                raise problem(
                    f"is greater than limits.{name}: lower guaranteed.{name}", "guaranteed", name
                )
        if self.default and (self.namespaces or self.namespace_selector or self.selector):
            raise problem(
                "excludes namespaces, namespaceSelector and selector: remove them, or use another "
                "budget",
                "default",
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
        return _matches(self.namespace_selector, namespace_labels) and _matches(
            self.selector, labels
        )

    def budget(self, others: Sequence[str] = ()) -> Budget:
        """Return the limits and guarantees as amounts. `others`: names of other resources."""
        limits, guaranteed = self.limits.amount(UNLIMITED, others), self.guaranteed
        return Budget(self.name, limits, guaranteed.amount(0, others))


def _matches(selector: Mapping[str, str], labels: Mapping[str, str] | None) -> bool:
    return labels is None or all(labels.get(key) == value for key, value in selector.items())


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
    weight: Annotated[float, Field(ge=0.001, le=1000)] | None = Field(
        default=None,
        description="Maximum of spec.trainers.weight. Default: no maximum.",
        examples=[1.0],
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
        return declared if cap is None else min(declared, cap)


def check_unique(field: str, kind: str, names: Sequence[str]) -> None:
    """Check that the objects of a list have different names."""
    for name in names:
        if names.count(name) > 1:
            raise problem(f"{name!r} is used twice: give each {kind} its own name", field)


class PolicySpec(Section):
    """The rules for sharing workers when not all inputs can get what they need."""

    budgets: list[BudgetSpec] = Field(
        default=[],
        description="Budgets of groups of inputs. An input can be in several; each of them "
        "applies. Default: none.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    stall_costs: dict[str, Annotated[float, Field(ge=0, le=1e6)]] = Field(
        default={},
        description="Cost of one waiting accelerator, in any unit, by the name in "
        "spec.trainers.accelerator of the inputs. Default: cost 1 for each name.",
        examples=[{"nvidia-h100": 4.0}],
    )
    priority_classes: list[PriorityClassSpec] = Field(
        default=[],
        description="The priorities that inputs can have. With classes, spec.trainers.priority of "
        "inputs does not count. Default: no classes.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
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
        check_unique("budgets", "budget", [one.name for one in self.budgets])
        check_unique("priorityClasses", "class", [one.name for one in self.priority_classes])
        return self

    @property
    def resource_names(self) -> tuple[str, ...]:
        """The names of the resources besides CPU and memory that budgets limit."""
        found = [{*one.limits.resources, *one.guaranteed.resources} for one in self.budgets]
        return tuple(sorted(set().union(*found)))

    @property
    def selects_namespaces(self) -> bool:
        """Whether a budget depends on labels of namespaces."""
        return any(one.namespace_selector for one in self.budgets)

    def budgets_of(
        self,
        namespace: str,
        labels: Mapping[str, str] | None,
        namespace_labels: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """Return the names of an input's budgets. With unknown labels (None), all that may be."""
        own = [one for one in self.budgets if not one.default]
        found = [one.name for one in own if one.covers(namespace, labels, namespace_labels)]
        unknown = labels is None or (namespace_labels is None and self.selects_namespaces)
        if not found or unknown:
            found += [one.name for one in self.budgets if one.default]
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

    api_version: Literal["distributed-input.dev/v1alpha1"]
    kind: Literal["InputPolicy"]
    metadata: Anything
    spec: PolicySpec = Field(default=PolicySpec(), description="The desired policy.")
    status: Anything = Field(default={}, description="Written by the operator.")
