"""The workers' section: how many, of what, and where they run."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.pods import Accelerator, Objects, Placement, Resources
from distributed_input.api.resource.scalars import Anything, Image, ObjectName, problem


class Autoscaling(Section):
    """Bounds within which the number of workers follows what the trainers can take."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.minReplicas <= self.maxReplicas",
                "minReplicas is more than maxReplicas: lower minReplicas or raise maxReplicas",
            )
        )
    )

    min_replicas: int = Field(default=1, ge=1, le=1000, description="The fewest workers.")
    max_replicas: int = Field(ge=1, le=1000, description="The most workers.", examples=[8])
    paused: bool = Field(
        default=False, description="The number stays as it is, until this is false again."
    )
    stabilization_window_seconds: int = Field(
        default=120,
        ge=0,
        le=3600,
        description="Workers go only after fewer would have done for so long.",
    )
    idle_ttl_seconds: Annotated[int, Field(ge=0, le=604800)] | None = Field(
        default=None,
        alias="idleTTLSeconds",
        description="Where no trainer has read for so long, all workers go, whatever minReplicas "
        "is; they return with the first that reads. Left out: minReplicas stay.",
        examples=[600],
    )

    @model_validator(mode="after")
    def _least_is_not_above_most(self) -> Autoscaling:
        if self.min_replicas > self.max_replicas:
            raise problem(
                f"{self.min_replicas} is more than maxReplicas {self.max_replicas}: lower "
                "minReplicas or raise maxReplicas",
                "minReplicas",
            )
        return self


class Workers(Section):
    """The processes that run the input pipeline."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "!has(self.autoscaling) || !has(oldSelf.autoscaling) || "
                "self.replicas == oldSelf.replicas",
                "replicas cannot be changed while autoscaling owns the number of workers: change "
                "minReplicas or maxReplicas, or take autoscaling away",
            )
        )
    )

    replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="How many; 0 pauses the input. `kubectl scale` and a HorizontalPodAutoscaler "
        "set it; with `autoscaling` it means nothing.",
        examples=[2],
    )
    autoscaling: Autoscaling | None = Field(
        default=None, description="Left out: the number stays at `replicas`."
    )
    parallelism: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="Rows that one worker computes at once. Left out: the CPUs that it asks for in "
        "a cluster, elsewhere the number of its cores.",
        examples=[4],
    )
    image: Image | None = Field(
        default=None,
        description="Image with TensorFlow, distributed-input and the dataset's code. Left out: "
        "the operator's own choice.",
    )
    resources: Resources = Field(
        default=Resources(),
        description="CPU and memory of a worker. Left out: 250m and 512Mi, no limits.",
    )
    accelerator: Accelerator | None = Field(
        default=None, description="For a dataset that computes on accelerators."
    )
    placement: Placement = Field(
        default="anywhere",
        description="near-trainers: on the trainers' nodes where these have CPUs to spare. "
        "dedicated: never on a node with trainers of this namespace.",
    )
    spot: bool = Field(
        default=False,
        description="Run on spot nodes, where there are any: a lost worker loses no row.",
    )
    priority_class_name: ObjectName | None = Field(
        default=None, description="A PriorityClass. Below -10, no node is ever added for workers."
    )
    service_account_name: ObjectName | None = Field(
        default=None,
        description="For access to storage by workload identity. Left out: one without rights.",
    )
    node_selector: dict[str, str] = Field(default={}, description="As in a pod.")
    tolerations: Objects = Field(default=[], description="As in a pod.")
    env: Objects = Field(default=[], description="As in a container; secrets by valueFrom.")
    volumes: Objects = Field(default=[], description="As in a pod: claims, secrets, CSI volumes.")
    volume_mounts: Objects = Field(default=[], description="As in a container.")
    termination_grace_period_seconds: int = Field(
        default=60,
        ge=5,
        le=3600,
        description="How long a worker may finish its splits before others go on with them.",
    )
    pod_template: Anything = Field(
        default={},
        description="Merged over the workers' pod template, for all that has no field here: "
        "mappings key by key, containers and other named things by name, other lists whole.",
    )
