"""The `Trainer` of transformers, with validation data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

import distributed_input
from testing.frameworks.resumption import EPOCHS, ROWS, STEPS, Ledger, check


class InputTrainer(distributed_input.transformers.InputMixin, transformers.Trainer):
    """A Trainer that reads inputs."""


class Model(torch.nn.Module):
    """One weight, and a ledger of the rows."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._layer = torch.nn.Linear(1, 1)
        self._ledger = ledger

    def forward(self, id: torch.Tensor, square: torch.Tensor) -> dict[str, Any]:  # noqa: A002
        """Use a batch."""
        if self.training:
            self._ledger.add(id)
        outputs = self._layer(square[:, None].float())
        return {"loss": outputs.sum(), "logits": outputs}


def train(data: distributed_input.Input, folder: Path, resume: bool, ledger: Ledger) -> None:
    """Train with a checkpoint after the last step before the end."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=EPOCHS * STEPS,
        save_steps=ledger.stop or 1000,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    with distributed_input.connect("validation", timeout=20) as validation:
        trainer = InputTrainer(
            Model(ledger),
            arguments,
            train_dataset=data.torch(),
            eval_dataset=validation.torch(),
        )
        trainer.train(resume_from_checkpoint=resume)
        predicted = trainer.predict(validation.torch())
        assert predicted.predictions[-1].shape == (ROWS, 1)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    check(train)
