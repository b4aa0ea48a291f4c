"""The sidecar's configuration of one input, as values and as JSON.

The operator writes it to the input's ConfigMap, and the runner to a file:
`{"inputs": {NAME: InputConfig as JSON}}`. It holds the fields of the resource that define what is
read and how. The defaults are those of the resource's models; a unit test compares them.

A reader ignores unknown fields and uses the default of a missing field, so that operator and
sidecar may have different versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed_input.api.errors import ConfigError

PROCESSING_MODES = ("distributed_epoch", "parallel_epochs")
REMAINDERS = ("keep", "drop", "pad")
ORDERS = ("strict", "any")
TRANSFERS = ("auto", "grpc")
DETERMINISMS = ("strict", "warn", "relaxed")


@dataclass(frozen=True)
class CodeSource:
    """Where the entry point's code comes from. Without path and ConfigMap: the worker's image."""

    path: str | None = None
    """An absolute folder on this machine."""
    config_map: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; it has exactly one field."""
        if self.path is not None:
            return {"path": self.path}
        return {"image": True} if self.config_map is None else {"configMap": self.config_map}


@dataclass(frozen=True)
class DatasetConfig:
    """The dataset. Without an entry point, the trainer sends it."""

    entry_point: str | None = None
    """package.module:function."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the entry point: JSON values."""
    source: CodeSource = CodeSource()

    @property
    def from_trainer(self) -> bool:
        """Whether the trainer sends the dataset."""
        return self.entry_point is None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "entryPoint": self.entry_point,
            "args": dict(self.args),
            "source": self.source.to_json(),
            "fromTrainer": self.from_trainer,
        }


@dataclass(frozen=True)
class BatchingConfig:
    """How rows become batches."""

    global_batch_size: int | None = None
    """Rows per step over all trainers. None: the dataset defines it."""
    remainder: str = "keep"
    """One of REMAINDERS."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"globalBatchSize": self.global_batch_size, "remainder": self.remainder}


@dataclass(frozen=True)
class DeliveryConfig:
    """How a sidecar delivers rows."""

    read_ahead: int | None = None
    """Splits that each partition opens ahead. None: as many as the workers can compute."""
    timeout_seconds: float = 600
    """Seconds without rows before the trainer gets a retryable error."""
    buffer_bytes: int = 256 << 20
    """Shared memory for batches that are ready."""
    transfer: str = "auto"
    """One of TRANSFERS."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "readAhead": self.read_ahead,
            "timeoutSeconds": self.timeout_seconds,
            "bufferBytes": self.buffer_bytes,
            "transfer": self.transfer,
        }


@dataclass(frozen=True)
class InputConfig:
    """One input. Law: `InputConfig.from_json(config.to_json()) == config`."""

    dataset: DatasetConfig = DatasetConfig()
    processing_mode: str = "distributed_epoch"
    """One of PROCESSING_MODES."""
    num_splits: int | None = None
    partitions: int | None = None
    seed: int = 0
    epochs: int | None = None
    """None: no limit."""
    batching: BatchingConfig = BatchingConfig()
    order: str = "strict"
    """One of ORDERS."""
    determinism: str = "warn"
    """One of DETERMINISMS."""
    sidecar: DeliveryConfig = DeliveryConfig()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. Its keys are camelCase; absent values are null."""
        return {
            "dataset": self.dataset.to_json(),
            "processingMode": self.processing_mode,
            "numSplits": self.num_splits,
            "partitions": self.partitions,
            "seed": self.seed,
            "epochs": self.epochs,
            "batching": self.batching.to_json(),
            "order": self.order,
            "determinism": self.determinism,
            "sidecar": self.sidecar.to_json(),
        }

    @classmethod
    def from_json(cls, value: Any, where: str = "") -> InputConfig:
        """Return the configuration in a decoded JSON object.

        Args:
            value: the decoded JSON.
            where: prefix of the fields in errors, such as "inputs.train".

        Raises:
            ConfigError: names the field that is invalid.
        """
        fields = _Fields(value, where)
        dataset, batching = fields.section("dataset"), fields.section("batching")
        source, sidecar = dataset.section("source"), fields.section("sidecar")
        return cls(
            dataset=DatasetConfig(
                entry_point=dataset.text("entryPoint"),
                args=dataset.mapping("args"),
                source=CodeSource(source.text("path"), source.text("configMap")),
            ),
            processing_mode=fields.choice("processingMode", PROCESSING_MODES, cls.processing_mode),
            num_splits=fields.count("numSplits"),
            partitions=fields.count("partitions"),
            seed=fields.count("seed") or cls.seed,
            epochs=fields.count("epochs"),
            batching=BatchingConfig(
                batching.count("globalBatchSize"),
                batching.choice("remainder", REMAINDERS, BatchingConfig.remainder),
            ),
            order=fields.choice("order", ORDERS, cls.order),
            determinism=fields.choice("determinism", DETERMINISMS, cls.determinism),
            sidecar=_delivery(sidecar),
        )


def _delivery(fields: _Fields) -> DeliveryConfig:
    size, seconds = fields.count("bufferBytes"), fields.number("timeoutSeconds")
    return DeliveryConfig(
        fields.count("readAhead"),
        DeliveryConfig.timeout_seconds if seconds is None else seconds,
        DeliveryConfig.buffer_bytes if size is None else size,
        fields.choice("transfer", TRANSFERS, DeliveryConfig.transfer),
    )


class _Fields:
    """Typed access to the fields of a JSON object. Null and missing fields are None."""

    def __init__(self, value: Any, where: str) -> None:
        self._where = where
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where or 'configuration'}: expected an object, got {value!r}")
        self._value = value

    def section(self, key: str) -> _Fields:
        return _Fields(self.mapping(key), self._path(key))

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._value.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._error(key, "an object")
        return dict(value or {})

    def text(self, key: str) -> str | None:
        value = self._value.get(key)
        if value is not None and not isinstance(value, str):
            raise self._error(key, "a string")
        return value or None

    def count(self, key: str) -> int | None:
        value = self._value.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._error(key, "a whole number of 0 or more")
        return value

    def number(self, key: str) -> float | None:
        value = self._value.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._error(key, "a number above 0")
        return value

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        value = self._value.get(key) or default
        if value not in choices:
            raise self._error(key, f"one of {', '.join(choices)}")
        return str(value)

    def _path(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _error(self, key: str, expected: str) -> ConfigError:
        return ConfigError(f"{self._path(key)}: expected {expected}, got {self._value[key]!r}")
