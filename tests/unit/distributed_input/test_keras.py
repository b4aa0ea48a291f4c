"""Completion in a notebook shows Keras's callbacks. tests/integration/trainer runs them."""

from __future__ import annotations

import keras

import distributed_input.keras as module


def test_dir_has_the_callbacks() -> None:
    shown = {name for name in dir(module) if not name.startswith("_")}
    callbacks = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, keras.callbacks.Callback)
        and value.__module__ == module.__name__
    }
    assert shown == callbacks == set(module.__all__)
    assert all(hasattr(module, name) for name in dir(module))
