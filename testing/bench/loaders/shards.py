"""Local files with rows, and their datasets of PyTorch's map style. Needs numpy alone."""

from __future__ import annotations

import functools
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FOLDER = Path(tempfile.gettempdir()) / "di-bench-loaders-1"
"""Another number for other files."""
SOURCES = _SHARDS = 16  # files of each kind
_TOKENS, _LENGTH = 4096, 1024  # rows of each shard, tokens of each row
_IMAGES, _SIDE = 256, 128  # images of each shard, pixels
_NUMBERS = 2_000_000


class Tokens:
    """Rows int32 [1024] of files of 16 MiB, that are mapped to memory: reading costs little."""

    def __init__(self) -> None:
        files = (FOLDER / "tokens" / f"{shard}.npy" for shard in range(_SHARDS))
        self._shards = [np.load(file, mmap_mode="r") for file in files]

    def __len__(self) -> int:
        return _SHARDS * _TOKENS

    def __getitem__(self, index: int) -> npt.NDArray[np.int32]:
        shard, row = divmod(int(index), _TOKENS)
        return np.array(self._shards[shard][row])


class Images:
    """Rows float32 [128, 128, 3] that take about 2 ms of CPU: decompressed, and normalized.

    Args:
        only: number of the only file that is read; None: all.
    """

    def __init__(self, only: int | None = None) -> None:
        numbers = range(_SHARDS) if only is None else (only,)
        self._shards = [_images(number) for number in numbers]

    def __len__(self) -> int:
        return len(self._shards) * _IMAGES

    def __getitem__(self, index: int) -> npt.NDArray[np.float32]:
        return decoded(self.compressed(index))

    def compressed(self, index: int) -> bytes:
        """Return the stored bytes of an image."""
        shard, row = divmod(int(index), _IMAGES)
        data, ends = self._shards[shard]
        return data[ends[row] : ends[row + 1]].tobytes()


class Numbers:
    """Two million rows: their indexes, as int64."""

    def __len__(self) -> int:
        return _NUMBERS

    def __getitem__(self, index: int) -> npt.NDArray[np.int64]:
        return np.asarray(index, np.int64)


DATASETS = {"tokens": Tokens, "images": Images, "numbers": Numbers}


def dataset_fn(context: Any, kind: str) -> Any:
    """Return a dataset for DistributedInput, whose workers read it by index."""
    return Images(int(context.source)) if kind == "source" else DATASETS[kind]()


@functools.cache
def _images(shard: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the compressed images of a file, and where each of them ends."""
    with np.load(FOLDER / "images" / f"{shard}.npz") as loaded:
        return loaded["data"], loaded["ends"]


def decoded(compressed: bytes) -> npt.NDArray[np.float32]:
    """Return the normalized pixels of an image."""
    pixels = np.frombuffer(zlib.decompress(compressed), np.uint8).reshape(_SIDE, _SIDE, 3)
    image = pixels[:, ::-1].astype(np.float32) / np.float32(255)
    image -= image.mean((0, 1))
    image /= image.std((0, 1)) + np.float32(1e-6)
    return image


def write() -> None:
    """Write the files, if they are missing."""
    if FOLDER.is_dir():
        return
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as name:
        new = Path(name) / "new"
        for kind in ("tokens", "images"):
            (new / kind).mkdir(parents=True)
        for shard in range(_SHARDS):
            tokens = rng.integers(0, 50_000, (_TOKENS, _LENGTH), np.int32)
            np.save(new / "tokens" / f"{shard}.npy", tokens)
            images = [_image(rng) for _ in range(_IMAGES)]
            ends = np.cumsum([0, *map(len, images)])
            data = np.frombuffer(b"".join(images), np.uint8)
            np.savez(new / "images" / f"{shard}.npz", data=data, ends=ends)
        new.rename(FOLDER)


def _image(rng: np.random.Generator) -> bytes:
    coarse = rng.integers(0, 256, (16, 16, 3), np.uint8)
    smooth = np.kron(coarse, np.ones((8, 8, 1), np.uint8))
    noise = rng.integers(0, 16, smooth.shape, np.uint8)
    return zlib.compress((smooth // 2 + noise).tobytes(), 6)
