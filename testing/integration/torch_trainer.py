"""A trainer without TensorFlow: checks the tensors of each input that the arguments name."""

from __future__ import annotations

import gc
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import distributed_input


def leaves(value: Any) -> Iterator[Any]:
    """Yield the arrays or tensors of a batch."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (tuple, list)):  # a DataLoader makes lists of tuples
        for item in value:
            yield from leaves(item)
    else:  # Ragged or Sparse
        yield from leaves(vars(value))


def content(batch: Any) -> list[tuple[tuple[int, ...], Any]]:
    """Return the shape and the bytes, or the strings, of each leaf."""
    found = []
    for leaf in leaves(batch):
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.view(torch.int16) if leaf.dtype == torch.bfloat16 else leaf
            leaf = leaf.numpy()
        data = leaf.tolist() if leaf.dtype == object else leaf.tobytes()
        found.append((leaf.shape, data))
    return found


def check(name: str) -> None:
    """Read an epoch as arrays, again as tensors, and its rest from a position within it."""
    with distributed_input.connect(name, timeout=20) as data:
        epoch = data.numpy()
        start = data.position()
        arrays = [content(batch) for batch in epoch]
        data.restore(start)
        dataset = data.torch()
        batches = iter(DataLoader(dataset, batch_size=None))
        first = next(batches)
        middle = dataset.state_dict()
        assert [content(first), *map(content, batches)] == arrays
        dataset.load_state_dict(middle)
        rest = iter(dataset)
        assert list(map(content, rest)) == arrays[1:]
        assert "state_dict()" in refusal(lambda: dataset.load_state_dict({"epoch": 3}))
        assert "num_workers=0" in refusal(lambda: pickle.dumps(dataset))
        # A view of a dropped batch keeps its memory, and the program may write to it.
        number = first["id"][:1]
        assert in_slots(data, number)
        if name == "dense":
            assert first["half"].dtype == torch.bfloat16
            assert first["text"].dtype == object
            assert in_slots(data, first["half"])
        del first, batches, rest
        processes = DataLoader(dataset, batch_size=None, num_workers=1)
        assert "num_workers=0" in refusal(lambda: next(iter(processes)))
        gc.collect()
        number += 1000
        kept = int(number)
        for _ in range(3):
            for batch in data.torch():
                assert int(batch["id"].max()) < 1000
        assert int(number) == kept


def refusal(call: Callable[[], Any]) -> str:
    """Return the message of the error that a call raises."""
    try:
        call()
    except distributed_input.DistributedInputError as error:
        return str(error)
    raise AssertionError("no error")


def in_slots(data: distributed_input.Input, tensor: Any) -> bool:
    """Return whether a tensor views the sidecar's shared memory."""
    slots = data._consumer._session.channel._slots
    assert slots is not None
    size = data._consumer.welcome.slots_bytes
    return bool(slots.address <= tensor.data_ptr() < slots.address + size)


if __name__ == "__main__":
    warnings.simplefilter("error")
    for argument in sys.argv[1:]:
        check(argument)
        print(argument)
    assert "tensorflow" not in sys.modules
