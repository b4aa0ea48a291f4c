"""Train on the digits with JAX. Batches are numpy arrays. TensorFlow is not imported.

distributed-input run examples/digits/input.yaml -- python examples/frameworks/train_jax.py
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp

import distributed_input

EPOCHS, RATE = 8, 0.3
ROWS = 1437  # rows of an epoch
MOST_LOSS = 0.35


def loss(params: Any, images: Any, labels: Any) -> Any:
    """Return the mean cross entropy of a batch: images [b, 8, 8, 1], labels [b]."""
    hidden = jax.nn.relu(images.reshape(len(images), -1) @ params["in"])
    logits = jax.nn.log_softmax(hidden @ params["out"])
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()


@jax.jit
def step(params: Any, images: Any, labels: Any) -> tuple[Any, Any]:
    """Do one step of gradient descent. Return the new parameters and the loss."""
    value, grads = jax.value_and_grad(loss)(params, images, labels)
    return jax.tree.map(lambda old, grad: old - RATE * grad, params, grads), value


def main() -> None:
    """Train. Exit with 1 if rows are missing or the loss is too high."""
    keys = jax.random.split(jax.random.key(0))
    params = {
        "in": jax.random.normal(keys[0], (64, 128)) / 8,
        "out": jax.random.normal(keys[1], (128, 10)) / 12,
    }
    with distributed_input.connect() as digits:
        for epoch in range(EPOCHS):
            rows, total = 0, 0.0
            for batch in digits.numpy():  # every call starts the next epoch
                params, value = step(params, batch["image"], batch["label"])
                rows += len(batch["id"])
                total += float(value) * len(batch["id"])
            print(f"epoch {epoch}: {rows} rows, loss {total / rows:.3f}")
    assert "tensorflow" not in sys.modules
    if rows != ROWS or total / rows > MOST_LOSS:
        sys.exit(f"{rows} of {ROWS} rows, and a loss of {total / rows:.3f} > {MOST_LOSS}")


if __name__ == "__main__":
    main()
