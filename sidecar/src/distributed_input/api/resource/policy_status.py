"""The status of the resource `InputPolicy`."""

from __future__ import annotations

from pydantic import Field

from distributed_input.api.resource.base import StatusSection


class BudgetStatus(StatusSection):
    """The use of a budget."""

    name: str = Field(description="Name of the budget.")
    inputs: int = Field(default=0, description="Number of inputs in the budget.")
    workers: int = Field(
        default=0, description="Number of worker pods, including those that are stopping."
    )
    wanted: int = Field(default=0, description="Number of workers that the inputs request.")
    cpu: str = Field(default="", description="CPU requests of dispatchers and workers.")
    memory: str = Field(default="", description="Memory requests of dispatchers and workers.")
    resources: dict[str, str] = Field(
        default={}, description="Requests of the other resources that budgets limit."
    )


class PolicyStatus(StatusSection):
    """The observed state, written by the operator at most every 30 s."""

    observed_generation: int = Field(
        default=0, description="Generation of the spec that is in effect."
    )
    message: str = Field(
        default="", description="Why the spec cannot be used. Empty if it is in effect."
    )
    summary: str = Field(
        default="", description="Worker pods of each budget, as name workers/limit."
    )
    budgets: list[BudgetStatus] = Field(
        default=[], description="Use of each budget, in the order of the spec."
    )
    observed_at: str = Field(default="", description="Time of this update.")
