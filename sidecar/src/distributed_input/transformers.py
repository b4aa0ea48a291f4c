"""A `transformers.Trainer` that reads an input, and continues within an epoch.

    class InputTrainer(distributed_input.transformers.InputMixin, transformers.Trainer): ...

    trainer = InputTrainer(model, TrainingArguments(max_steps=1000), train_dataset=train.torch())
    trainer.train(resume_from_checkpoint=...)

Batches reach the model as they are: the Trainer's batch size, collator and sampler are not used.
The position is in `trainer_state.json` of each checkpoint.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import transformers
from transformers.trainer_callback import ExportableState

from distributed_input.api.errors import PositionError
from distributed_input.trainer.frameworks.pytorch import is_dataset

__all__ = ["InputMixin"]
_POSITION = "position"


def __dir__() -> list[str]:
    """Return the public names, which completion shows, and not what this module imports."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


class InputMixin:
    """Lets a subclass of `transformers.Trainer` read what `connect().torch()` returns.

    Other datasets are read as usual. Set `max_steps`, because the length of an epoch is not known.
    """

    # The Trainer has these.
    args: Any
    train_dataset: Any
    eval_dataset: Any
    add_callback: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if is_dataset(self.train_dataset):
            self.args.ignore_data_skip = True  # the position is behind the batches to skip
            self.add_callback(_InputPosition)

    def get_train_dataloader(self) -> Any:
        """Return the batches of the training data."""
        if is_dataset(self.train_dataset):
            return _Epochs(self.train_dataset)
        return super().get_train_dataloader()  # type: ignore[misc]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the batches of validation data: a dataset, or the name of one of several."""
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(chosen, str):
            chosen = self.eval_dataset[chosen]
        if is_dataset(chosen):
            return _Epochs(chosen)
        return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the batches to predict for."""
        if is_dataset(test_dataset):
            return _Epochs(test_dataset)
        return super().get_test_dataloader(test_dataset)  # type: ignore[misc]


class _Epochs:
    """The batches of one epoch after the other, as the Trainer expects a DataLoader."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        # The Trainer ends at an epoch without batches. A position behind the last batch of an epoch
        # has none left.
        for _ in range(2):
            is_empty = True
            for batch in self.dataset:
                is_empty = False
                yield batch
            if not is_empty:
                return


class _InputPosition(transformers.TrainerCallback, ExportableState):  # type: ignore[misc]
    """Saves the position of the training data in the state of the Trainer, and restores it."""

    def __init__(self) -> None:
        self._dataset: Any = None

    def on_train_begin(  # the Trainer's arguments
        self, _args: Any, state: Any, _control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        """Restore the position of the checkpoint from which the Trainer continues, if it does.

        Raises:
            PositionError: the checkpoint has none.
        """
        self._dataset = train_dataloader.dataset
        if not state.global_step:
            return
        saved = state.stateful_callbacks.get(type(self).__name__, {})
        position = saved.get("attributes", {}).get(_POSITION)
        if not position:
            raise PositionError(
                f"the checkpoint of step {state.global_step} has no position of the input: it was "
                "saved without InputMixin. Restore another one, or start without a checkpoint"
            )
        self._dataset.load_state_dict({_POSITION: base64.b64decode(position)})

    def state(self) -> dict[str, Any]:
        """Return the position, for `trainer_state.json`. It is empty before the training begins."""
        state = self._dataset.state_dict() if self._dataset is not None else {}
        position = base64.b64encode(state.get(_POSITION, b"")).decode()
        return {"args": {}, "attributes": {_POSITION: position}}
