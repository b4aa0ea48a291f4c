"""PyTorch's loop with torchdata's StatefulDataLoader, and with the dataset alone and DCP."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torchdata.stateful_dataloader import StatefulDataLoader

import distributed_input
from testing.frameworks.resumption import EPOCHS, STEPS, Ledger, check


def with_loader(data: distributed_input.Input, folder: Path, resume: bool, ledger: Ledger) -> None:
    """Train as torchtitan does: one loader, whose state is a part of the checkpoint."""
    model = torch.nn.Linear(1, 1)
    loader = StatefulDataLoader(data.torch(), batch_size=None)
    file = folder / "checkpoint.pt"
    steps = 0
    if resume:
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        steps = saved["steps"]
    while steps < EPOCHS * STEPS:
        for batch in loader:
            ledger.add(batch["id"])
            model(batch["square"][:, None].float()).sum().backward()
            steps += 1
            if ledger.is_due:
                state = {"model": model.state_dict(), "loader": loader.state_dict()}
                torch.save({**state, "steps": steps}, file)


def with_dcp(data: distributed_input.Input, folder: Path, resume: bool, ledger: Ledger) -> None:
    """Train with the dataset as a part of PyTorch's distributed checkpoint."""
    model = torch.nn.Linear(1, 1)
    dataset = data.torch()
    done = torch.zeros([], dtype=torch.int64)
    state = {"model": model, "input": dataset, "epochs": {"done": done}}
    if resume:
        dcp.load(state, checkpoint_id=folder)
    for epoch in range(int(state["epochs"]["done"]), EPOCHS):
        done.fill_(epoch)
        for batch in dataset:
            ledger.add(batch["id"])
            model(batch["square"][:, None].float()).sum().backward()
            if ledger.is_due:
                dcp.save(state, checkpoint_id=folder)


if __name__ == "__main__":
    check({"loader": with_loader, "dcp": with_dcp}[sys.argv[1]])
