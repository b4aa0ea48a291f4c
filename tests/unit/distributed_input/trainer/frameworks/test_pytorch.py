"""Types that the installed PyTorch lacks are refused before an epoch begins."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.trainer.frameworks import loops, pytorch
from distributed_input.trainer.frameworks.lazy_epoch import LoopCounter


@pytest.mark.parametrize("dtype", ["uint16", "int4"])
def test_a_type_that_torch_lacks_is_named_with_its_component(dtype: str) -> None:
    torch = SimpleNamespace(__version__="2.2.0", int4=object())  # without operations on int4
    fields = "label", "depth", "text"
    dtypes = "int64", dtype, "string"
    leaves = tuple(Leaf(path, "dense", one, ()) for path, one in zip(fields, dtypes, strict=True))
    spec = ElementSpec({path: number for number, path in enumerate(fields)}, leaves)
    with pytest.raises(ConfigError, match=f"'?depth'?: PyTorch 2.2.0 has no type {dtype}"):
        pytorch.check(torch, spec)


class FakeInput:
    """An input whose position is the number of batches that its loop has used."""

    name = "train"

    def __init__(self) -> None:
        self.counter = LoopCounter()
        self.restored: list[int] = []

    def position(self) -> int:
        return self.counter.used

    def restore(self, position: int) -> None:
        self.restored.append(position)

    def begin(self, counter: LoopCounter) -> Iterator[str]:
        self.counter = counter
        return iter("abc")


@pytest.mark.parametrize(("ahead", "restored"), [(0, []), (1, [0])])
def test_an_epoch_that_a_loop_only_looked_at_begins_again(
    monkeypatch: pytest.MonkeyPatch, ahead: int, restored: list[int]
) -> None:
    torch = ModuleType("torch")
    parts = SimpleNamespace(IterableDataset=object, get_worker_info=lambda: None)
    torch.utils = SimpleNamespace(data=parts)
    monkeypatch.setattr(loops, "batches_ahead", lambda _: ahead)
    source = FakeInput()
    batches = pytorch.dataset(torch, source, source.begin)
    iter(batches)  # dropped without a request
    assert next(iter(batches)) == "a"  # Lightning fetches a batch before it resumes elsewhere
    assert next(iter(batches)) == "a"
    assert source.restored == restored
    list(iter(batches))
    list(iter(batches))
    assert source.restored == restored * 2  # only the second one was not used
