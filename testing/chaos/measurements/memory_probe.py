"""The sidecar with a thread that writes what uses the memory of the process, once a minute.

`main` runs in place of the sidecar's own. Each sample is a line of JSON in the folder `FOLDER_ENV`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from grpc._cython import cygrpc

from distributed_input.api import flags
from distributed_input.sidecar import main as sidecar

FOLDER_ENV = "SOAK_FOLDER"
_TRACED = 0
"""The consumer that runs tracemalloc, which needs memory and time itself."""
_SECONDS = 60.0
_BASE = 5  # samples before the one that later ones are compared with
_FRAMES = 3
_TOP = 10


def main(argv: Sequence[str]) -> int:
    """Run the sidecar and the probe. Return the exit status."""
    consumer = int(argv[argv.index(flags.CONSUMER_INDEX) + 1])
    mode = "traced" if consumer == _TRACED else "sampled"
    if consumer == _TRACED:
        tracemalloc.start(_FRAMES)
    file = Path(os.environ[FOLDER_ENV]) / f"sidecar-{consumer} ({mode})-{os.getpid()}.jsonl"
    threading.Thread(target=_write_samples, args=(file,), name="probe", daemon=True).start()
    return sidecar.main(argv)


def _write_samples(path: Path) -> None:
    began, python = time.monotonic(), _Python()
    with path.open("w", buffering=1) as file:
        while True:
            time.sleep(_SECONDS)
            values = {"minutes": (time.monotonic() - began) / 60, **sample()}
            if tracemalloc.is_tracing():
                values |= python.sample()
            file.write(json.dumps(values) + "\n")


def sample() -> dict[str, Any]:
    """Return the sizes in bytes, and the numbers, of what this process holds now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "own": int(status["RssAnon"].split()[0]) << 10,
        "files": int(status["RssFile"].split()[0]) << 10,
        **malloc(),
        "blocks": sys.getallocatedblocks(),
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")),
        **grpc_objects(),
    }


class _Python:
    """What Python's own objects use, compared with an early sample."""

    def __init__(self) -> None:
        self._number = 0
        self._base: tuple[tracemalloc.Snapshot, Counter[str]] | None = None

    def sample(self) -> dict[str, Any]:
        """Return the totals, and what has grown most since the base: [change, total, what]."""
        collected = gc.collect()
        snapshot = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__)]
        )
        types = Counter(type(each).__qualname__ for each in gc.get_objects())
        self._number += 1
        if self._base is None or self._number <= _BASE:
            self._base = snapshot, types
        lines = snapshot.compare_to(self._base[0], "traceback")[:_TOP]
        grown = sorted(types, key=lambda name: self._base_count(name) - types[name])[:_TOP]
        return {
            "traced": sum(each.size for each in snapshot.traces),
            "tracemalloc": tracemalloc.get_tracemalloc_memory(),
            "collected": collected,
            "objects": types.total(),
            "lines": [[each.size_diff, each.size, str(each.traceback)] for each in lines],
            "types": [[types[name] - self._base_count(name), types[name], name] for name in grown],
        }

    def _base_count(self, name: str) -> int:
        return self._base[1][name] if self._base is not None else 0


def malloc() -> dict[str, int]:
    """Return the bytes in use and free in all of malloc's heaps, and the number of heaps."""
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = ctypes.c_void_p
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    file = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    libc.malloc_info(0, file)
    libc.fclose(file)
    heaps = ElementTree.fromstring((text.value or b"").decode()).findall("heap")
    libc.free(text)
    held = sum(_size(heap, "system[@type='current']") for heap in heaps)
    free = sum(_size(heap, f"total[@type='{kind}']") for heap in heaps for kind in ("fast", "rest"))
    return {"heaps": len(heaps), "in_use": held - free, "free": free}


def _size(heap: ElementTree.Element, path: str) -> int:
    found = heap.find(path)
    assert found is not None, path
    return int(found.attrib["size"])


def grpc_objects() -> dict[str, int]:
    """Return the number of gRPC's client channels, subchannels and sockets in this process."""
    found = Counter(channels=0, subchannels=0, sockets=0)
    start, end = 0, False
    while not end:
        page = json.loads(cygrpc.channelz_get_top_channels(start))
        for channel in page.get("channel", ()):
            start = int(channel["ref"]["channelId"]) + 1
            found["channels"] += 1
            for each in channel.get("subchannelRef", ()):
                answer = json.loads(cygrpc.channelz_get_subchannel(int(each["subchannelId"])))
                found["subchannels"] += 1
                found["sockets"] += len(answer.get("subchannel", {}).get("socketRef", ()))
        end = page.get("end", False) or not page.get("channel")
    return dict(found)
