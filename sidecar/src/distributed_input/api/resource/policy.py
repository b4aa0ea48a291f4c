"""The cluster's policy: `InputPolicy`, cluster-scoped, one object named `cluster`.

    apiVersion: distributed-input.dev/v1alpha1
    kind: InputPolicy
    metadata: {name: cluster}
    spec:
      budgets:
        - {name: everything, limits: {workers: 200, cpu: 400}}
        - {name: research, namespaces: [vision, speech], guaranteed: {workers: 60}}
      stallCosts: {nvidia-h100: 4, tpu-v5e: 1.2}

Its definition comes from these models, as that of DistributedInput does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import Anything, Namespace, Quantity, problem, quantity

POLICY_KIND = "InputPolicy"
POLICY_PLURAL = "inputpolicies"
POLICY_NAME = "cluster"
"""There is one: two could contradict each other."""

Amount = tuple[int, int, int]
"""Workers, CPU in thousandths, memory in bytes."""
UNLIMITED = 1 << 62
NO_LIMIT: Amount = (UNLIMITED, UNLIMITED, UNLIMITED)
NOTHING: Amount = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on the workers of some inputs together, and what is guaranteed to them."""

    name: str
    limits: Amount = NO_LIMIT
    guaranteed: Amount = NOTHING


BudgetName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63, examples=["research"])
]


class Amounts(Section):
    """Of worker pods, by what they ask for. What is left out does not count."""

    workers: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Worker pods.", examples=[60]
    )
    cpu: Quantity | None = Field(default=None, description="Their requests.", examples=["400"])
    memory: Quantity | None = Field(default=None, description="Their requests.", examples=["2Ti"])

    def amount(self, nothing: int) -> Amount:
        """In thousandths of a CPU and in bytes; `nothing` where nothing is said."""
        return (
            nothing if self.workers is None else self.workers,
            nothing if self.cpu is None else min(UNLIMITED, int(1000 * quantity(self.cpu))),
            nothing if self.memory is None else min(UNLIMITED, int(quantity(self.memory))),
        )


def _not_above(resource: str) -> tuple[str, str]:
    left, right = f"self.guaranteed.{resource}", f"self.limits.{resource}"
    both = "has(self.guaranteed) && has(self.limits) && " + " && ".join(
        f"has({one})" for one in (left, right)
    )
    more = f"{left} <= {right}"
    if resource != "workers":
        more = f"quantity(string({left})).compareTo(quantity(string({right}))) <= 0"
    return f"!({both}) || {more}", f"guaranteed {resource} are more than the limit: lower them"


class BudgetSpec(Section):
    """Bounds for the workers of some inputs together."""

    model_config = ConfigDict(json_schema_extra=cel(*map(_not_above, ("workers", "cpu", "memory"))))

    name: BudgetName = Field(description="What explanations and metrics call it.")
    namespaces: list[Namespace] = Field(
        default=[], description="Inputs in these count in it. Left out: in all."
    )
    selector: dict[str, str] = Field(
        default={}, description="Inputs with all of these labels count in it. Left out: any."
    )
    limits: Amounts = Field(default=Amounts(), description="Never more than this.")
    guaranteed: Amounts = Field(
        default=Amounts(),
        description="So much goes to these inputs before others get any; what they do not ask for "
        "is lent, and taken back by drain.",
    )

    @model_validator(mode="after")
    def _guarantee_within_limit(self) -> BudgetSpec:
        kept, most = self.guaranteed.amount(0), self.limits.amount(UNLIMITED)
        for name, less, more in zip(("workers", "cpu", "memory"), kept, most, strict=True):
            if less > more:
                raise problem(f"{name} are more than the limit: lower them", "guaranteed")
        return self

    def covers(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Whether an input counts in it; whose labels are not known may."""
        if self.namespaces and namespace not in self.namespaces:
            return False
        return labels is None or all(
            labels.get(key) == value for key, value in self.selector.items()
        )

    def budget(self) -> Budget:
        """As the sharing out takes it."""
        return Budget(self.name, self.limits.amount(UNLIMITED), self.guaranteed.amount(0))


class PolicySpec(Section):
    """How workers are shared out where not all inputs can have what they want."""

    budgets: list[BudgetSpec] = Field(
        default=[],
        description="An input may count in several: all of them hold.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    stall_costs: dict[str, Annotated[float, Field(ge=0, le=1e6)]] = Field(
        default={},
        description="What one accelerator costs while it waits, by the name that inputs give in "
        "spec.trainers.accelerator, in any one unit. Those that are not named cost 1.",
        examples=[{"nvidia-h100": 4.0}],
    )

    @model_validator(mode="after")
    def _each_name_once(self) -> PolicySpec:
        names = [one.name for one in self.budgets]
        for name in names:
            if names.count(name) > 1:
                raise problem(f"{name!r} is there twice: give each budget its own name", "budgets")
        return self


class InputPolicy(Section):
    """How the cluster's input workers are shared out."""

    api_version: Literal["distributed-input.dev/v1alpha1"]
    kind: Literal["InputPolicy"]
    metadata: Anything
    spec: PolicySpec = Field(default=PolicySpec(), description="What is wanted.")
    status: Anything = Field(default={}, description="Written by the operator.")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class BudgetStatus(_Part):
    """What a budget has given."""

    name: str = Field(description="The budget's.")
    inputs: int = Field(default=0, description="That count in it.")
    workers: int = Field(default=0, description="That there are, those that leave included.")
    wanted: int = Field(default=0, description="That are asked for.")
    cpu: str = Field(default="", description="That these ask for.")
    memory: str = Field(default="", description="That these ask for.")


class PolicyStatus(_Part):
    """Written by the operator, every 30 s at most."""

    observed_generation: int = Field(default=0, description="Of the spec that is in force.")
    message: str = Field(default="", description="Why the spec cannot be used; empty where it is.")
    summary: str = Field(default="", description="Workers of each budget: there are/limit.")
    budgets: list[BudgetStatus] = Field(default=[], description="In the order of the spec.")
    observed_at: str = Field(default="", description="When this was written.")
