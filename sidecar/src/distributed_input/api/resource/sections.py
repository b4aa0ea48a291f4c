"""The sections of a DistributedInput's spec: what each field means, its bounds and default."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from distributed_input.api.resource.base import Section, cel, fixed
from distributed_input.api.resource.pods import Resources
from distributed_input.api.resource.scalars import (
    MIB,
    Anything,
    Buffer,
    ConfigMapName,
    EntryPoint,
    Image,
    Path,
    problem,
    quantity,
    quantity_bytes,
)


class Source(Section):
    """Where the entry point's code comes from: one of the three."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "[has(self.path), has(self.configMap), has(self.image)].filter(x, x).size() <= 1",
                "path, configMap and image exclude each other: keep one of them",
            )
        )
    )

    path: Path | None = Field(
        default=None,
        description="A folder on this machine, relative to the YAML file, for "
        "`distributed-input run`; in a cluster the worker's image must have the code.",
        examples=["."],
    )
    config_map: ConfigMapName | None = Field(
        default=None, description="A ConfigMap in the same namespace whose keys are Python files."
    )
    image: Literal[True] | None = Field(
        default=None, description="The worker's image has it already. The default."
    )

    @field_validator("path")
    @classmethod
    def _from_the_files_folder(cls, path: str | None, info: ValidationInfo) -> str | None:
        folder = (info.context or {}).get("folder")
        return os.path.abspath(os.path.join(folder, path)) if folder and path else path

    @model_validator(mode="after")
    def _at_most_one(self) -> Source:
        given = sorted(to_camel(name) for name, value in self if value is not None)
        if len(given) > 1:
            raise problem(f"{' and '.join(given)} exclude each other: keep one of them")
        return self


class Dataset(Section):
    """What is read: a function that the workers import, or a dataset that the trainer sends."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "!has(self.entryPoint) || !has(self.fromTrainer) || !self.fromTrainer",
                "fromTrainer excludes entryPoint: keep one of them, as a dataset comes either from "
                "the trainer or from the entry point",
            ),
            (
                "has(self.entryPoint) || !has(self.fromTrainer) || self.fromTrainer",
                "fromTrainer: false needs an entry point: add "
                "`entryPoint: package.module:function`",
            ),
            (
                "has(self.entryPoint) || !has(self.source) || !(has(self.source.path) || "
                "has(self.source.configMap) || has(self.source.image))",
                "source belongs to an entry point, and there is none: add `entryPoint: "
                "package.module:function`, or take source away for a dataset from the trainer",
            ),
            (
                "has(self.entryPoint) || !has(self.args)",
                "args belongs to an entry point, and there is none: add `entryPoint: "
                "package.module:function`, or take args away for a dataset from the trainer",
            ),
        )
    )

    entry_point: EntryPoint | None = Field(
        default=None,
        description="The dataset function, package.module:function. Workers import it and call "
        "it with an input context and `args`.",
    )
    args: Anything = Field(
        default={}, description="Keyword arguments of the entry point: any JSON."
    )
    source: Source = Field(default=Source(), description="Where the entry point's code comes from.")
    from_trainer: bool | None = Field(
        default=None,
        description="The trainer sends the dataset: `distribute(strategy, dataset_fn)`. The "
        "default where there is no entry point.",
    )

    @property
    def traced(self) -> bool:
        """Whether the trainer sends the dataset, said or by default."""
        return self.entry_point is None

    @field_validator("args")
    @classmethod
    def _json_keywords(cls, args: dict[str, Any]) -> dict[str, Any]:
        for key, value in args.items():
            if not key.isidentifier():
                raise problem(f"{key!r} cannot be the name of a function's argument", key)
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                raise problem(
                    "is not JSON: use text, finite numbers, true, false, null, lists and "
                    "mappings of them",
                    key,
                ) from None
        return args

    @model_validator(mode="after")
    def _one_of_two(self) -> Dataset:
        entry = "entryPoint: package.module:function"
        if self.entry_point is not None:
            if self.from_trainer:
                raise problem(
                    "excludes entryPoint: keep one of them, as a dataset comes either from the "
                    "trainer or from the entry point",
                    "fromTrainer",
                )
            return self
        if self.from_trainer is False:
            raise problem(f"false needs an entry point: add `{entry}`", "fromTrainer")
        for name, given in (("args", self.args), ("source", self.source != Source())):
            if given:
                raise problem(
                    f"belongs to an entry point, and there is none: add `{entry}`, or take "
                    f"{name} away for a dataset from the trainer",
                    name,
                )
        return self


class Batching(Section):
    """How rows become batches."""

    model_config = ConfigDict(json_schema_extra=cel(*fixed("globalBatchSize")))

    global_batch_size: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None,
        description="Rows of a step over all trainers. Left out: what dataset_fn asks the "
        "context for, or the call, or the dataset's own batch says.",
        examples=[256],
    )
    remainder: Literal["keep", "drop", "pad"] = Field(
        default="keep",
        description="What becomes of the rows that do not fill an epoch's last batch: a smaller "
        "batch, none, or one filled up with zeros. drop and pad give static shapes.",
    )


class Dispatcher(Section):
    """The process that knows which workers and trainers are there."""

    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None,
        description="Where it listens; in a cluster its Service has 7070 all the same. Left out: "
        "7070 in a cluster, elsewhere any port.",
        examples=[7070],
    )
    resources: Resources = Field(
        default=Resources(), description="CPU and memory of its pod. Left out: 100m and 128Mi."
    )


class TfDataService(Section):
    """TensorFlow's own tf.data service beside ours, for programs that know nothing of us.

    `tfDataService: {}` is all that it takes. Its limits stay its own: a worker that dies loses
    elements, its iterators cannot be checkpointed, and everybody who reaches it may use it, for it
    knows no token: the input's NetworkPolicy is what keeps others away.
    """

    port: int = Field(default=7080, ge=1024, le=65535, description="Where its dispatcher listens.")
    static_sharding: bool = Field(
        default=False,
        description="Tell its dispatcher the workers beforehand, as ShardingPolicy FILE, DATA, "
        "FILE_OR_DATA and HINT ask for. It then starts once all workers.replicas are there, and "
        "anew when one is replaced; not with autoscaling. OFF and DYNAMIC do not need it.",
    )
    journal: Anything = Field(
        default={},
        description="The volume of its dispatcher's journal, as in a pod. Left out: an emptyDir, "
        "which outlives a container that restarts, but not its pod.",
        examples=[{"persistentVolumeClaim": {"claimName": "journal"}}],
    )
    cross_trainer_cache: Buffer = Field(
        default="256Mi",
        description="Memory of each cross-trainer cache in a worker, 1Mi to 1Ti.",
    )
    resources: Resources = Field(
        default=Resources(),
        description="CPU and memory of each of its containers. Left out: 250m and 512Mi.",
    )


SIDECAR_BYTES = 128 * MIB
"""What a sidecar needs beside its input's ring: 98 MiB were measured."""


class Sidecar(Section):
    """The process beside each trainer that fetches its share."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "!has(self.resources) || !has(self.resources.limits) || "
                "!('memory' in self.resources.limits) || "
                "quantity(string(self.resources.limits['memory'])).compareTo("
                "quantity(string(self.buffer)).add(quantity('128Mi'))) >= 0",
                "resources.limits.memory has no room for buffer and the process: set it to the "
                "buffer and 128Mi more, or leave it out",
            )
        )
    )

    buffer: Buffer = Field(
        default="256Mi",
        description="Memory shared with the trainer for batches that are ready, 1Mi to 1Ti.",
    )
    read_ahead: int = Field(
        default=1, ge=0, le=8, description="Splits that each partition opens ahead of need."
    )
    timeout_seconds: int = Field(
        default=600,
        ge=1,
        le=86400,
        description="How long the trainer waits for rows before an error that can be retried.",
    )
    image: Image | None = Field(
        default=None,
        description="Image of sidecars and of the dispatcher. Left out: the operator's own choice.",
    )
    resources: Resources = Field(
        default=Resources(),
        description="CPU and memory of the sidecar's container. Left out: 250m, and memory for the "
        "buffer and 128Mi more.",
    )

    @model_validator(mode="after")
    def _memory_holds_the_buffer(self) -> Sidecar:
        limit = self.resources.limits.get("memory")
        least = quantity_bytes(self.buffer) + SIDECAR_BYTES
        if limit is not None and quantity(limit) < least:
            raise problem(
                f"{limit} has no room for buffer {self.buffer} and the process: set "
                f"it to {-(-least // MIB)}Mi or more, or leave it out",
                "resources",
                "limits",
                "memory",
            )
        return self
