"""`python -m distributed_input.worker.replay_process`: for `distributed-input rows`.

Reads a JSON object from standard input, with "position" (base64), "config" (InputConfig) and

- "find": [component, value]: which steps have the rows with this value?
- or "steps": [first, last], "trainer": index or null, "values": whether to compute the rows, and
  "file": path of a file in numpy's format .npz for them, or null.

Prints a JSON object, where name stands for "source" (null without a mixture), "epoch" and "split":

- {"found": [{"step", name, "row"}]},
- or {"ranges": [{"step", name, "first_row", "rows", "verified"}], "values": [an object for each
  row], "assumed_from": the first step that has other rows if the program has changed the weights of
  a mixture since the position was saved, or null},
- or {"error", "is_config"}.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.api.proto import trainer_pb2
from distributed_input.order.step_rows import RowRange
from distributed_input.rows.decode import decode_leaves
from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.runs import Bytes, row_offsets, slice_run
from distributed_input.worker.replay import EpochRows

_PREFIX = "lineage."
"""First part of the names of arrays in a file that are no components of the dataset."""


def answer(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request: see the module.

    Raises:
        DistributedInputError: see `EpochRows`.
    """
    position = trainer_pb2.Position.FromString(base64.b64decode(given["position"]))
    config = InputConfig.from_json(given["config"])
    computes = bool(given.get("values"))
    if computes and config.determinism == "relaxed":
        raise ConfigError(
            "spec.determinism: Relaxed: random values may differ when a split runs again, so that "
            "the rows that were delivered cannot be computed again"
        )
    epoch = EpochRows(position, config)
    if given.get("find"):
        return {
            "found": [
                {"step": one.step, **_name(epoch, one.split), "row": one.row}
                for one in epoch.find(*given["find"])
            ]
        }
    first, last = given["steps"]
    ranges = [
        (step, one)
        for step in range(first, last + 1)
        for one in epoch.ranges(step, given.get("trainer"))
    ]
    values: list[dict[str, Any]] = []
    if computes:
        buffers = epoch.read([one for _, one in ranges])
        if given.get("file"):
            save(given["file"], epoch, ranges, buffers)
        else:
            values = list(values_of_rows(epoch.row, sum(one.rows for _, one in ranges), buffers))
    return {
        "ranges": [
            {
                "step": step,
                **_name(epoch, one.split),
                "first_row": one.first_row,
                "rows": one.rows,
                "verified": computes and epoch.is_verified(one),
            }
            for step, one in ranges
        ],
        "values": values,
        "assumed_from": position.step if position.sources and last >= position.step else None,
    }


def _name(epoch: EpochRows, split: int) -> dict[str, Any]:
    """Return the split by which `dataset_fn` knows it."""
    at = epoch.located(split)
    return {"source": at.job.entry_point.source or None, "epoch": at.epoch, "split": at.split}


def values_of_rows(
    row: ElementSpec, rows: int, buffers: Sequence[Bytes]
) -> Iterator[dict[str, Any]]:
    """Yield each row of a run as JSON values, by the name of its arrays; see `arrays_of`."""
    offsets = row_offsets(row.columns, buffers)
    for at in range(rows):
        one = slice_run(row.columns, buffers, at, at + 1, offsets)
        arrays = arrays_of(row, None, one)
        yield {name: _plain(value) for name, value in arrays.items()}


def arrays_of(
    row: ElementSpec, rows: int | None, buffers: Sequence[Bytes]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a run by the path of their component; "value" if it has none.

    A ragged or sparse component has several, such as `x.values` and `x.row_splits_0`.
    """
    found: dict[str, NDArray[Any]] = {}
    for leaf, value in zip(row.leaves, decode_leaves(row, rows, buffers), strict=True):
        name = leaf.path or "value"
        if isinstance(value, np.ndarray):
            found[name] = value
            continue
        for field, part in vars(value).items():
            if isinstance(part, tuple):
                found |= {f"{name}.{field}_{at}": one for at, one in enumerate(part)}
            else:
                found[f"{name}.{field}"] = part
    return found


def save(
    path: str, epoch: EpochRows, ranges: Sequence[tuple[int, RowRange]], buffers: Sequence[Bytes]
) -> None:
    """Write the arrays of a run to a file that `numpy.load` reads, with the names of its rows.

    `numpy.savez` cannot write an array with the name `file`.
    """
    rows = sum(one.rows for _, one in ranges)
    names = epoch.names(_joined([np.full(one.rows, one.split) for _, one in ranges]))
    arrays = {
        **arrays_of(epoch.row, rows, buffers),
        f"{_PREFIX}step": _joined([np.full(one.rows, step) for step, one in ranges]),
        **{f"{_PREFIX}{name}": values for name, values in names._asdict().items()},
        f"{_PREFIX}row": _joined([one.first_row + np.arange(one.rows) for _, one in ranges]),
    }
    try:
        with zipfile.ZipFile(path, "w") as archive:
            for name, value in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, value, allow_pickle=True)
    except OSError as error:
        raise ConfigError(f"--save {path}: {error.strerror or error}") from error


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64)


def _plain(value: Any) -> Any:
    """Return an array, or a part of it, as a JSON value."""
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value] if value.ndim else _plain(value.item())
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, bool | int | float) else str(value)


def main() -> int:
    """Answer the request on standard input."""
    # What the user's module prints must not mix with the answer.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        try:
            result = answer(json.load(sys.stdin))
        except DistributedInputError as error:
            result = {"error": str(error), "is_config": isinstance(error, ConfigError)}
        json.dump(result, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
