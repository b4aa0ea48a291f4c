"""Lightning's Trainer, which fetches a batch ahead and saves the state of the dataset itself."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import distributed_input
from testing.frameworks.resumption import EPOCHS, Ledger, check


class Model(lightning.LightningModule):
    """One weight, and a ledger of the rows."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._layer = torch.nn.Linear(1, 1)
        self._ledger = ledger

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Use a batch."""
        self._ledger.add(batch["id"])
        return self._layer(batch["square"][:, None].float()).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), 1e-9)


def train(data: distributed_input.Input, folder: Path, resume: bool, ledger: Ledger) -> None:
    """Train with a checkpoint after the last step before the end."""
    every = ModelCheckpoint(
        folder, "last", every_n_train_steps=ledger.stop or 1000, enable_version_counter=False
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        callbacks=[every],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(
        Model(ledger), data.torch(), ckpt_path=str(folder / "last.ckpt") if resume else None
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    check(train)
