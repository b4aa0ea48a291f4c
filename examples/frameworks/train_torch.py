"""Train on the digits with PyTorch, on tensors in shared memory. TensorFlow is not imported.

distributed-input run examples/digits/input.yaml -- python examples/frameworks/train_torch.py
"""

from __future__ import annotations

import sys

import torch

import distributed_input

EPOCHS, RATE = 8, 0.3
ROWS = 1437  # rows of an epoch
MOST_LOSS = 0.35


def main() -> None:
    """Train. Exit with 1 if rows are missing or the loss is too high."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    with distributed_input.connect() as digits:
        for epoch in range(EPOCHS):
            rows, total = 0, 0.0
            for batch in digits.torch():  # every call starts the next epoch
                images, labels = batch["image"], batch["label"]
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rows += len(labels)
                total += loss.item() * len(labels)
            print(f"epoch {epoch}: {rows} rows, loss {total / rows:.3f}")
    assert "tensorflow" not in sys.modules
    if rows != ROWS or total / rows > MOST_LOSS:
        sys.exit(f"{rows} of {ROWS} rows, and a loss of {total / rows:.3f} > {MOST_LOSS}")


if __name__ == "__main__":
    main()
