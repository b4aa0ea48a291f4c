"""The sections `dataset` and `batching`: the rows to read, and how they form batches."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.alias_generators import to_camel

from distributed_input.api.resource.base import Section, cel, immutable
from distributed_input.api.resource.scalars import (
    Anything,
    ConfigMapName,
    EntryPoint,
    Path,
    problem,
)

_ADD_ENTRY_POINT = "add `entryPoint: package.module:function`"


def check_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of an entry point, which must be JSON with Python's names."""
    for key, value in args.items():
        if not key.isidentifier():
            raise problem(
                f"{key!r} is not a valid argument name: use letters, digits and '_', not "
                "starting with a digit",
                key,
            )
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise problem(
                "is not JSON: use text, finite numbers, true, false, null, lists and mappings",
                key,
            ) from None
    return args


class SourceSpec(Section):
    """The location of the entry point's code: path, configMap or image."""

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
        description="Folder of the code on this machine, relative to the YAML file. Used by "
        "`distributed-input run`. In a cluster, the worker's image must contain the code.",
        examples=["."],
    )
    config_map: ConfigMapName | None = Field(
        default=None,
        description="Name of a ConfigMap in the same namespace. Each of its keys is a Python file.",
    )
    image: Literal[True] | None = Field(
        default=None,
        description="The worker's image contains the code. Default: true, if path and configMap "
        "are not set.",
    )

    @field_validator("path")
    @classmethod
    def _resolve_path(cls, path: str | None, info: ValidationInfo) -> str | None:
        """Join a relative path to the absolute folder of the YAML file, if there is a file."""
        folder = (info.context or {}).get("folder")
        return os.path.normpath(os.path.join(folder, path)) if folder and path else path

    @model_validator(mode="after")
    def _check_at_most_one(self) -> SourceSpec:
        given = sorted(to_camel(name) for name, value in self if value is not None)
        if len(given) > 1:
            raise problem(f"{' and '.join(given)} exclude each other: keep one of them")
        return self


class DatasetSpec(Section):
    """The dataset: a function that workers import, or a dataset that the trainer sends."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "!has(self.entryPoint) || !has(self.fromTrainer) || !self.fromTrainer",
                "fromTrainer: true excludes entryPoint: remove one of them",
            ),
            (
                "has(self.entryPoint) || !has(self.fromTrainer) || self.fromTrainer",
                f"fromTrainer: false needs an entry point: {_ADD_ENTRY_POINT}",
            ),
            (
                "has(self.entryPoint) || !has(self.source) || !(has(self.source.path) || "
                "has(self.source.configMap) || has(self.source.image))",
                f"source needs an entry point: {_ADD_ENTRY_POINT}, or remove source if the trainer "
                "sends the dataset",
            ),
            (
                "has(self.entryPoint) || !has(self.args)",
                f"args needs an entry point: {_ADD_ENTRY_POINT}, or remove args if the trainer "
                "sends the dataset",
            ),
        )
    )

    entry_point: EntryPoint | None = Field(
        default=None,
        description="Dataset function as package.module:function. Workers import it and call it "
        "with an input context and `args`. Default: none; the trainer sends the dataset.",
    )
    args: Anything = Field(
        default={},
        description="Keyword arguments of the entry point; any JSON values. Default: none.",
    )
    source: SourceSpec = Field(
        default=SourceSpec(),
        description="Location of the entry point's code. Default: the worker's image.",
    )
    from_trainer: bool | None = Field(
        default=None,
        description="The trainer sends the dataset with `distribute(strategy, dataset_fn)`. "
        "Default: true without an entry point, otherwise false.",
    )

    @property
    def traced(self) -> bool:
        """Whether the trainer sends the dataset, explicitly or by default."""
        return self.entry_point is None

    _check_args = field_validator("args")(check_arguments)

    @model_validator(mode="after")
    def _check_entry_point_or_trainer(self) -> DatasetSpec:
        if self.entry_point is not None:
            if self.from_trainer:
                raise problem("true excludes entryPoint: remove one of them", "fromTrainer")
            return self
        if self.from_trainer is False:
            raise problem(f"false needs an entry point: {_ADD_ENTRY_POINT}", "fromTrainer")
        for name, given in (("args", self.args), ("source", self.source != SourceSpec())):
            if given:
                raise problem(
                    f"needs an entry point: {_ADD_ENTRY_POINT}, or remove {name} if the trainer "
                    "sends the dataset",
                    name,
                )
        return self


class BatchingSpec(Section):
    """The size of batches, and the handling of an epoch's last batch."""

    model_config = ConfigDict(json_schema_extra=cel(*immutable("globalBatchSize")))

    global_batch_size: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None,
        description="Rows per step over all trainers. Default: the size that dataset_fn requests "
        "from its context, that the call passes, or that the dataset batches with.",
        examples=[256],
    )
    remainder: Literal["keep", "drop", "pad"] = Field(
        default="keep",
        description="Handling of rows that do not fill an epoch's last batch. keep: a smaller "
        "batch. drop: no batch. pad: a batch padded with zeros. drop and pad give static shapes. "
        "Default: keep.",
    )
