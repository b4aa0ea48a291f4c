"""Applies the shim before anything else is imported. Python imports this module at its start."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location(
    "testing.portability.shim", Path(__file__).parents[1] / "shim.py"
)
assert _spec is not None
assert _spec.loader is not None
_shim = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _shim
_spec.loader.exec_module(_shim)
_shim.apply()
