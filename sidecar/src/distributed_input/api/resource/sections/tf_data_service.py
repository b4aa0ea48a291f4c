"""The section `tfDataService`."""

from __future__ import annotations

from pydantic import Field

from distributed_input.api.resource.base import Section
from distributed_input.api.resource.scalars import Anything, Buffer
from distributed_input.api.resource.sections.pods import ResourceRequirements


class TfDataServiceSpec(Section):
    """TensorFlow's own tf.data service in the pods of the input.

    `tfDataService: {}` enables it with all defaults. The service keeps its own limits: a lost
    worker loses elements, and its iterators cannot be checkpointed. It does not check a token, so
    only the input's NetworkPolicy restricts access to it.
    """

    port: int = Field(
        default=7080,
        ge=1024,
        le=65535,
        description="Port that the tf.data service's dispatcher listens on. Default: 7080.",
    )
    static_sharding: bool = Field(
        default=False,
        description="Give the tf.data service's dispatcher a fixed list of workers. Required for "
        "ShardingPolicy FILE, DATA, FILE_OR_DATA and HINT, but not for OFF and DYNAMIC. The "
        "dispatcher starts when all workers.replicas are running, and restarts when a worker is "
        "replaced. Excludes workers.autoscaling. Default: false.",
    )
    journal: Anything = Field(
        default={},
        description="Volume of the dispatcher's journal, as in a pod's spec. Default: an emptyDir, "
        "which survives a restart of the container but not of the pod.",
        examples=[{"persistentVolumeClaim": {"claimName": "journal"}}],
    )
    cross_trainer_cache: Buffer = Field(
        default="256Mi",
        description="Memory of each cross-trainer cache in a worker, from 1Mi to 1Ti. "
        "Default: 256Mi.",
    )
    resources: ResourceRequirements = Field(
        default=ResourceRequirements(),
        description="CPU and memory of each container of the tf.data service. Default: requests "
        "of 250m CPU and 512Mi memory, no limits.",
    )
