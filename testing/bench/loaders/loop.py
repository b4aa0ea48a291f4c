"""The process under test: a loop over a loader, in an environment with all of them.

`python -m testing.bench.loaders.loop OPTIONS`. OPTIONS is a JSON object; it prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from testing.bench.loaders import shards
from testing.bench.processes import cpu_seconds, with_descendants

BATCH, WORKERS = 64, 4
_PAGE = 4096


def data_loader(kind: str) -> Iterator[Any]:
    """Return endless batches of PyTorch's DataLoader."""
    import torch.utils.data

    if kind == "sources":
        each = [shards.Images(number) for number in range(shards.SOURCES)]
        rows: Any = torch.utils.data.ConcatDataset(each)
    else:
        rows = shards.DATASETS[kind]()
    return _endless(
        torch.utils.data.DataLoader(
            rows,
            batch_size=BATCH,
            shuffle=True,
            drop_last=True,
            num_workers=WORKERS,
            persistent_workers=True,
        )
    )


def grain(kind: str) -> Iterator[Any]:
    """Return endless batches of Grain's dataset API."""
    import grain.python as pygrain

    rows = pygrain.MapDataset.source(shards.DATASETS[kind]()).shuffle(seed=0).repeat()
    options = pygrain.MultiprocessingOptions(num_workers=WORKERS)
    return iter(rows.batch(BATCH).to_iter_dataset().mp_prefetch(options))


def streaming(kind: str) -> Iterator[Any]:
    """Return endless batches of MosaicML Streaming, from its own files with the same rows."""
    import torch.utils.data
    from streaming import StreamingDataset

    class Decoded(StreamingDataset):
        def __getitem__(self, index: int) -> Any:
            row = super().__getitem__(index)["row"]
            return shards.decoded(row) if isinstance(row, bytes) else row

    folder = str(shards.FOLDER / f"{kind}-mds")
    rows = Decoded(local=folder, shuffle=True, batch_size=BATCH)
    loader = torch.utils.data.DataLoader(
        rows, batch_size=BATCH, drop_last=True, num_workers=WORKERS, persistent_workers=True
    )
    return _endless(loader)


def ours(_: str) -> Iterator[Any]:
    """Return endless batches of DistributedInput, as PyTorch's tensors."""
    import distributed_input

    return _endless(distributed_input.connect().torch())


SYSTEMS: dict[str, Callable[[str], Iterator[Any]]] = {
    "DataLoader": data_loader,
    "Grain": grain,
    "Streaming": streaming,
    "DistributedInput": ours,
}


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def write_streaming() -> None:
    """Write the files of Streaming, if they are missing."""
    from streaming import MDSWriter

    for kind, column in (("tokens", "ndarray:int32:1024"), ("images", "bytes")):
        folder = shards.FOLDER / f"{kind}-mds"
        if folder.is_dir():
            continue
        partial = folder.with_suffix(".new")
        with MDSWriter(out=str(partial), columns={"row": column}) as writer:
            for number in range(len(rows := shards.DATASETS[kind]())):
                row = rows.compressed(number) if isinstance(rows, shards.Images) else rows[number]
                writer.write({"row": row})
        partial.rename(folder)


def consume(batches: Iterator[Any], seconds: float) -> dict[str, float]:
    """Take batches for this time. Read a byte of every page."""
    rows = size = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        array = np.asarray(next(batches))
        array.reshape(-1).view(np.uint8)[::_PAGE].sum()
        rows += len(array)
        size += array.nbytes
    return {"seconds": spent, "rows": rows, "bytes": size}


def main() -> None:
    """Measure the time to the first batch, and then the steady state."""
    options = json.loads(sys.argv[1])
    if options.get("write"):
        write_streaming()
        print("{}")
        return
    if "batches" in options:
        _hold(SYSTEMS[options["system"]](options["kind"]), options["batches"])
        return
    own, others = [os.getpid(), *options["pids"]], options["others"]
    began = time.perf_counter()
    batches = SYSTEMS[options["system"]](options["kind"])
    next(batches)
    first = time.perf_counter() - began
    consume(batches, options["first_seconds"])
    before = cpu_seconds(own), cpu_seconds(others)
    seen = consume(batches, options["seconds"])
    host, other = cpu_seconds(own) - before[0], cpu_seconds(others) - before[1]
    print(json.dumps({**seen, "first": first, "host": host, "cpu": host + other}), flush=True)
    _end()


def _hold(batches: Iterator[Any], count: int) -> None:
    """Read batches, print a line, and wait for the end of the input."""
    for _ in range(count):
        next(batches)
    print("ready", flush=True)
    sys.stdin.read()
    _end()


def _end() -> None:
    for process in with_descendants([os.getpid()]):  # Grain's would outlive this one
        if process.pid != os.getpid():
            process.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
