"""Accelerate's loop, which saves the position of the dataset with the model."""

from __future__ import annotations

from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

import distributed_input
from testing.frameworks.resumption import EPOCHS, Ledger, check, refusal


class Epochs:
    """The number of epochs that the loop has done."""

    done = 0

    def state_dict(self) -> dict[str, int]:
        """Return the number."""
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Set the number."""
        self.done = state["done"]


def train(data: distributed_input.Input, folder: Path, resume: bool, ledger: Ledger) -> None:
    """Train with checkpoints of Accelerate."""
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    model, optimizer, dataset = accelerator.prepare(model, optimizer, data.torch())
    epochs = Epochs()
    accelerator.register_for_checkpointing(dataset, epochs)
    if resume:
        accelerator.load_state(str(folder))
    while epochs.done < EPOCHS:
        for batch in dataset:
            ledger.add(batch["id"])
            square = batch["square"][:, None].float().to(accelerator.device)
            accelerator.backward(model(square).sum())
            optimizer.step()
            if ledger.is_due:
                accelerator.save_state(str(folder))
        epochs.done += 1


def refuse() -> None:
    """Check that a DataLoader which Accelerate has prepared is refused before it drops rows."""
    with distributed_input.connect("train", timeout=20) as data:
        loader = Accelerator(cpu=True).prepare(DataLoader(data.torch(), batch_size=None))
        assert "without a DataLoader" in refusal(lambda: next(iter(loader)))


if __name__ == "__main__":
    check(train)
    refuse()
