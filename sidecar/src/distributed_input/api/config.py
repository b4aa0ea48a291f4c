"""The sidecar's configuration of one input, as values and as JSON.

The operator writes it to the input's ConfigMap, and the runner to a file:
`{"inputs": {NAME: InputConfig as JSON}}`. It holds the fields of the resource that define what is
read and how. The defaults are those of the resource's models; a unit test compares them.

A reader ignores unknown fields and uses the default of a missing field, so that operator and
sidecar may have different versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from distributed_input.api.errors import ConfigError

PROCESSING_MODES = ("distributed_epoch", "parallel_epochs")
REMAINDERS = ("keep", "drop", "pad")
TRANSFERS = ("auto", "grpc")
EXHAUSTIONS = ("repeat", "stop", "drop")
DETERMINISMS = ("strict", "warn", "relaxed")
ON_ERRORS = ("fail", "skip")
PACKING_METHODS = ("best_fit", "first_fit", "concatenate_and_cut")


@dataclass(frozen=True)
class CodeSource:
    """Where the entry point's code comes from. Without path and ConfigMap: the worker's image."""

    path: str | None = None
    """An absolute folder on this machine."""
    config_map: str | None = None


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


@dataclass(frozen=True)
class BatchingConfig:
    """How rows become batches."""

    global_batch_size: int | None = None
    """Rows per step over all trainers. None: the dataset defines it."""
    remainder: str = "keep"
    """One of REMAINDERS."""


@dataclass(frozen=True)
class MixtureConfig:
    """The sources of a mixture."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each source, by its name. Empty: no mixture."""
    on_exhausted: str = "repeat"
    """One of EXHAUSTIONS."""
    schedule: Sequence[Mapping[str, Any]] = ()
    """Changes of the weights: objects with `step` and `weights`, by increasing step."""


@dataclass(frozen=True)
class PackingConfig:
    """How rows of variable length become rows of one length."""

    length: int | None = None
    """Values of a packed row. None: rows stay as they are."""
    method: str = "best_fit"
    """One of PACKING_METHODS."""
    open_sequences: int = 64
    """Packed rows of a split that are filled at the same time."""
    balance_window: int = 0
    """Packed rows of a split that are ordered together by their cost. 0: none."""


@dataclass(frozen=True)
class SourceLimitsConfig:
    """Limits of the records that a source of a mixture may skip. None: those of the input."""

    max_per_split: int | None = None
    max_percent: int | None = None


@dataclass(frozen=True)
class BadRecordsConfig:
    """What happens to records that cannot be read."""

    on_error: str = "fail"
    """One of ON_ERRORS."""
    max_per_split: int = 100
    """Records that a split may leave out in an epoch."""
    max_percent: int = 10
    """Share of a split's records that it may leave out, and 10 records more."""
    sources: Mapping[str, SourceLimitsConfig] = field(default_factory=dict)
    """Limits of sources, by name."""
    exclude: Sequence[Mapping[str, Any]] = ()
    """Records that are left out without reading them: objects with `step` and `index`, and `file`,
    `split`, `epoch` and `source`, which may be null: any."""


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
    determinism: str = "warn"
    """One of DETERMINISMS."""
    sidecar: DeliveryConfig = DeliveryConfig()
    mixture: MixtureConfig = MixtureConfig()
    bad_records: BadRecordsConfig = BadRecordsConfig()
    packing: PackingConfig = PackingConfig()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. Its keys are camelCase; absent values are null."""
        result: dict[str, Any] = _to_json(self)
        source = {key: one for key, one in result["dataset"]["source"].items() if one is not None}
        result["dataset"]["source"] = source or {"image": True}
        result["dataset"]["fromTrainer"] = self.dataset.from_trainer
        if not self.mixture.weights:
            del result["mixture"]  # older images do not know it
        if self.packing.length is None:
            del result["packing"]
        for name in ("sources", "exclude"):
            if not result["badRecords"][name]:
                del result["badRecords"][name]
        return result

    @classmethod
    def from_json(cls, value: Any, where: str = "") -> InputConfig:
        """Return the configuration in a decoded JSON object.

        `where` is the prefix of fields in errors, such as "inputs.train".

        Raises:
            ConfigError: names the field that is invalid.
        """
        whole = _Fields(value, where)
        dataset, batching = whole.section("dataset"), whole.section("batching")
        source, sidecar = dataset.section("source"), whole.section("sidecar")
        mixture = whole.section("mixture")
        bad, packing = whole.section("badRecords"), whole.section("packing")
        return cls(
            DatasetConfig(
                dataset.text("entryPoint"),
                dataset.mapping("args"),
                CodeSource(source.text("path"), source.text("configMap")),
            ),
            whole.choice("processingMode", PROCESSING_MODES, cls.processing_mode),
            whole.count("numSplits"),
            whole.count("partitions"),
            whole.count("seed", cls.seed),
            whole.count("epochs"),
            BatchingConfig(
                batching.count("globalBatchSize"),
                batching.choice("remainder", REMAINDERS, BatchingConfig.remainder),
            ),
            whole.choice("determinism", DETERMINISMS, cls.determinism),
            DeliveryConfig(
                sidecar.count("readAhead"),
                sidecar.number("timeoutSeconds", DeliveryConfig.timeout_seconds),
                sidecar.count("bufferBytes", DeliveryConfig.buffer_bytes),
                sidecar.choice("transfer", TRANSFERS, DeliveryConfig.transfer),
            ),
            MixtureConfig(
                mixture.weights("weights"),
                mixture.choice("onExhausted", EXHAUSTIONS, MixtureConfig.on_exhausted),
                tuple(
                    {"step": change.count("step", 0), "weights": change.weights("weights")}
                    for change in mixture.sections("schedule")
                ),
            ),
            BadRecordsConfig(
                bad.choice("onError", ON_ERRORS, BadRecordsConfig.on_error),
                bad.count("maxPerSplit", BadRecordsConfig.max_per_split),
                bad.count("maxPercent", BadRecordsConfig.max_percent),
                {
                    name: SourceLimitsConfig(
                        limits.count("maxPerSplit"), limits.count("maxPercent")
                    )
                    for name, limits in bad.section("sources").sections_by_name()
                },
                tuple(
                    {
                        "source": record.text("source"),
                        "step": record.text("step"),
                        "index": record.count("index", 0),
                        "file": record.text("file"),
                        "split": record.count("split"),
                        "epoch": record.count("epoch"),
                    }
                    for record in bad.sections("exclude")
                ),
            ),
            PackingConfig(
                packing.count("length"),
                packing.choice("method", PACKING_METHODS, PackingConfig.method),
                packing.count("openSequences", PackingConfig.open_sequences),
                packing.count("balanceWindow", PackingConfig.balance_window),
            ),
        )


def _to_json(section: Any) -> Any:
    """Return a dataclass as a JSON object, also in a mapping, and any other value as it is."""
    if isinstance(section, Mapping):
        return {key: _to_json(one) for key, one in section.items()}
    if not is_dataclass(section):
        return section
    return {_camel(one.name): _to_json(getattr(section, one.name)) for one in fields(section)}


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)


class _Fields:
    """Checked access to the fields of a JSON object. Null and missing fields have the default."""

    def __init__(self, value: Any, where: str) -> None:
        self._where = where
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where or 'configuration'}: expected an object, got {value!r}")
        self._value = value

    def section(self, key: str) -> _Fields:
        return _Fields(self.mapping(key), self._path(key))

    def mapping(self, key: str) -> dict[str, Any]:
        return dict(self._get(key, {}, lambda one: isinstance(one, Mapping), "an object"))

    def sections(self, key: str) -> list[_Fields]:
        values = self._get(key, (), lambda one: isinstance(one, (list, tuple)), "a list")
        return [_Fields(one, f"{self._path(key)}[{at}]") for at, one in enumerate(values)]

    def sections_by_name(self) -> list[tuple[str, _Fields]]:
        return [(name, self.section(name)) for name in self._value]

    def weights(self, key: str) -> dict[str, float]:
        section = self.section(key)
        return {name: float(section.number(name, 0, zero=True)) for name in self.mapping(key)}

    def text(self, key: str) -> Any:
        return self._get(key, None, lambda one: isinstance(one, str), "a string") or None

    def count(self, key: str, default: int | None = None) -> Any:
        return self._get(
            key, default, lambda one: type(one) is int and one >= 0, "a whole number of 0 or more"
        )

    def number(self, key: str, default: float, *, zero: bool = False) -> Any:
        expected = "a number of 0 or more" if zero else "a number above 0"
        return self._get(
            key,
            default,
            lambda one: type(one) in (int, float) and (one > 0 or (zero and one == 0)),
            expected,
        )

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        return str(self._get(key, default, choices.__contains__, f"one of {', '.join(choices)}"))

    def _get(self, key: str, default: Any, fits: Callable[[Any], bool], expected: str) -> Any:
        value = self._value.get(key)
        if value is not None and not fits(value):
            raise ConfigError(f"{self._path(key)}: expected {expected}, got {value!r}")
        return default if value is None else value

    def _path(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key
