"""The sections about the rows: `dataset`, `batching`, `packing` and `badRecords`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from distributed_input.api.resource.base import Section, cel, immutable
from distributed_input.api.resource.scalars import (
    Anything,
    ConfigMapName,
    EntryPoint,
    Path,
    problem,
)


class ConfigMapCode(Section):
    """A ConfigMap with the code."""

    name: ConfigMapName
    """Name of a ConfigMap in the same namespace. Each of its keys is a Python file. Required."""


class CodeLocation(Section):
    """The location of the entry point's code."""

    model_config = cel(
        (
            "(self.type == 'ConfigMap') == has(self.configMap)",
            "type ConfigMap needs configMap, and other types exclude it: correct type, or add "
            "or remove configMap",
        ),
        (
            "(self.type == 'Path') == has(self.path)",
            "type Path needs path, and other types exclude it: correct type, or add or remove path",
        ),
    )

    type: Literal["Image", "ConfigMap", "Path"]
    """Kind of the location. Image: the worker's image. ConfigMap: `configMap`. Path: `path`.
    Required."""
    config_map: ConfigMapCode | None = None
    """ConfigMap with the code. Required for type ConfigMap."""
    path: Path | None = Field(default=None, examples=["."])
    """Folder of the code on this machine, relative to the YAML file. Required for type Path. Used
    by `distributed-input run`. In a cluster, the worker's image must contain the code."""

    @field_validator("path")
    @classmethod
    def _resolve_path(cls, path: str | None, info: ValidationInfo) -> str | None:
        """Join a relative path to the absolute folder of the YAML file, if there is a file."""
        folder = (info.context or {}).get("folder")
        return os.path.normpath(os.path.join(folder, path)) if folder and path else path

    @model_validator(mode="after")
    def _check_member(self) -> CodeLocation:
        members = {"ConfigMap": ("configMap", self.config_map), "Path": ("path", self.path)}
        _check_union(self.type, members)
        return self


class EntryPointDataset(Section):
    """A dataset function that workers import."""

    function: EntryPoint
    """Dataset function as package.module:function. Workers import it and call it with an input
    context and `args`. Required."""
    args: Anything = Field(default={})
    """Keyword arguments of the function; any JSON values. Default: none."""
    source: CodeLocation | None = None
    """Location of the code. Default: the worker's image."""

    @field_validator("args")
    @classmethod
    def _check_args(cls, args: dict[str, Any]) -> dict[str, Any]:
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


class DatasetSpec(Section):
    """The dataset: a function that workers import, or a dataset that the trainer sends."""

    model_config = cel(
        (
            "(self.type == 'EntryPoint') == has(self.entryPoint)",
            "type EntryPoint needs entryPoint, and type Trainer excludes it: correct type, or "
            "add or remove entryPoint",
        )
    )

    type: Literal["EntryPoint", "Trainer"]
    """Origin of the dataset. EntryPoint: workers call `entryPoint`. Trainer: the trainer sends it
    with `distribute(strategy, dataset_fn)`. Required."""
    entry_point: EntryPointDataset | None = None
    """Dataset function that workers import. Required for type EntryPoint."""

    @property
    def path(self) -> str | None:
        """The folder of the code on this machine, if it is there."""
        source = self.entry_point and self.entry_point.source
        return source.path if source else None

    @property
    def config_map(self) -> str | None:
        """The name of the ConfigMap with the code, if it is there."""
        source = self.entry_point and self.entry_point.source
        return source.config_map.name if source and source.config_map else None

    @model_validator(mode="after")
    def _check_member(self) -> DatasetSpec:
        _check_union(self.type, {"EntryPoint": ("entryPoint", self.entry_point)})
        return self


class BatchingSpec(Section):
    """The size of batches, and the handling of an epoch's last batch."""

    model_config = cel(*immutable("globalBatchSize"))

    global_batch_size: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None, examples=[256]
    )
    """Rows per step over all trainers. Default: the size that dataset_fn requests from its context,
    that the call passes, or that the dataset batches with."""
    remainder: Literal["Keep", "Drop", "Pad"] = "Keep"
    """Handling of rows that do not fill an epoch's last batch. Keep: a smaller batch. Drop: no
    batch. Pad: a batch padded with zeros. Drop and Pad give static shapes. Default: Keep."""


class PackingSpec(Section):
    """Rows of one length, which hold several rows of variable length."""

    length: Annotated[int, Field(ge=1, le=2**24)] = Field(examples=[2048])
    """Number of values, such as tokens, of a packed row. Shorter ones are filled up with zeros.
    Required."""
    method: Literal["BestFit", "FirstFit", "ConcatenateAndCut"] = "BestFit"
    """Packed row to which a row is added. BestFit: the one with the least room for it. FirstFit:
    the oldest one with room. ConcatenateAndCut: the only open one; the row is cut at its end, and
    continues in the next one. Default: BestFit."""
    open_sequences: Annotated[int, Field(ge=1, le=4096)] = Field(default=64, examples=[16])
    """Maximum number of packed rows of a split that are filled at the same time, in memory. If a
    row fits into none of them, the fullest one is complete. Not used by ConcatenateAndCut. Default:
    64."""
    balance_window: Annotated[int, Field(ge=0, le=65536)] = Field(default=0, examples=[256])
    """Number of consecutive packed rows of a split that change their order, so that the rows of the
    ranks in a step cost about the same. They are in memory. 0: the order stays. Default: 0."""


class ExcludedRecord(Section):
    """A record, as `distributed-input rows --skipped` names it."""

    step: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        examples=["Dataset_map_parse"]
    )
    """Function or reader that gets the record. Required."""
    index: Annotated[int, Field(ge=0, le=2**62)]
    """Index of the record in the input of the step, in its file, or in a dataset that is read by
    index. Required."""
    file: Annotated[str, Field(min_length=1, max_length=240)] | None = Field(
        default=None, examples=["/data/001.tfrecord"]
    )
    """File of the record. Needed for the step TFRecordDataset. Default: any."""
    split: Annotated[int, Field(ge=0, le=65535)] | None = Field(default=None, examples=[3])
    """Split that reads the record. Default: any."""
    epoch: Annotated[int, Field(ge=0, le=2**53)] | None = Field(default=None, examples=[1])
    """Epoch in which the record has this index. Needed if a shuffle comes before the step. Default:
    any."""
    source: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None, examples=["books"]
    )
    """Source of a mixture. Default: any."""


MaxPerSplit = Annotated[int, Field(ge=1, le=100_000)]
MaxPercent = Annotated[int, Field(ge=1, le=100)]


class SourceLimitsSpec(Section):
    """Limits of the records that a source of a mixture may skip."""

    max_per_split: MaxPerSplit | None = Field(default=None, examples=[1000])
    """Maximum number of records of a split. Default: badRecords.maxPerSplit."""
    max_percent: MaxPercent | None = Field(default=None, examples=[1])
    """Maximum share of the records of a split, in percent. Default: badRecords.maxPercent."""


class BadRecordsSpec(Section):
    """Records that cannot be read, parsed or decoded, and records to leave out."""

    on_error: Literal["Fail", "Skip"] = "Fail"
    """Reaction to the error of a record. Fail: the trainer gets the error. Skip: the epoch
    continues without the record, and the status has it. Errors of storage are never skipped.
    Default: Fail."""
    max_per_split: MaxPerSplit = Field(default=100, examples=[1000])
    """Maximum number of records that a split may skip in an epoch. More are an error. Default:
    100."""
    max_percent: MaxPercent = Field(default=10, examples=[1])
    """Maximum share of the records of a split that it may skip, in percent, besides 10 records.
    More are an error. Default: 10."""
    sources: Annotated[dict[str, SourceLimitsSpec], Field(max_length=64)] = Field(
        default={}, examples=[{"books": {"maxPercent": 1}}]
    )
    """Other limits for sources of a mixture, by name. Default: none."""
    exclude: Annotated[list[ExcludedRecord], Field(max_length=64)] = Field(
        default=[], examples=[[{"step": "Dataset_map_parse", "index": 17, "split": 3}]]
    )
    """Records that are left out without reading them, whatever onError is. They do not count for
    the limits. A change takes effect when the trainers start again. Default: none."""


def _check_union(chosen: str, members: Mapping[str, tuple[str, object]]) -> None:
    """Check that exactly the member of the chosen type is set.

    `members` has the field and the value of each type that has one.
    """
    for kind, (field, value) in members.items():
        if kind == chosen and value is None:
            raise problem(f"is missing: type {chosen} needs it", field)
        if kind != chosen and value is not None:
            raise problem(f"is only for type {kind}: remove it, or set type to {kind}", field)
