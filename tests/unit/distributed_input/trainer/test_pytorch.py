"""Types that the installed PyTorch lacks are refused before an epoch begins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.trainer import pytorch


@pytest.mark.parametrize("dtype", ["uint16", "int4"])
def test_a_type_that_torch_lacks_is_named_with_its_component(dtype: str) -> None:
    torch = SimpleNamespace(__version__="2.2.0", int4=object())  # without operations on int4
    fields = "label", "depth", "text"
    dtypes = "int64", dtype, "string"
    leaves = tuple(Leaf(path, "dense", one, ()) for path, one in zip(fields, dtypes, strict=True))
    spec = ElementSpec({path: number for number, path in enumerate(fields)}, leaves)
    with pytest.raises(ConfigError, match=f"'?depth'?: PyTorch 2.2.0 has no type {dtype}"):
        pytorch.check(torch, spec)
