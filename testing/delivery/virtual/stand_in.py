"""A stand-in for the module `tensorflow`, which takes ten seconds to import.

The simulated modules import TensorFlow, but the parts that call it are replaced (see `dataset`).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any, ClassVar


class _Error(Exception):
    """Stands for tf.errors.OpError, which nothing raises here."""

    message = ""


class _Module(ModuleType):
    """A module in which every name exists and is a class without content."""

    __version__ = "2.16.0"
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "OpError":
            return _Error
        full = f"{self.__name__}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        made = _Module(full)
        setattr(self, name, made)
        return made

    def __call__(self, *_: Any, **__: Any) -> Any:
        return lambda function: function

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: Any) -> Any:
        return object


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name == "tensorflow" or name.startswith("tensorflow."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> None:
    """Let `import tensorflow` give the stand-in, unless TensorFlow is imported already."""
    if "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())
