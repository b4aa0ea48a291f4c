"""The mark that makes a test a row of docs/compatibility.md; see the package's docstring."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest


class Reference(Enum):
    """Where a behaviour is documented: the page's sections, in its order."""

    GUIDE = "Guide: Distributed Input"
    DATASET = "tf.distribute.DistributedDataset"
    ITERATOR = "tf.distribute.DistributedIterator"
    TPU = "tf.distribute.TPUStrategy"
    STRATEGIES = "The other strategies"
    KERAS = "Keras"
    SERVICE = "tf.data.experimental.service.distribute"
    JOBS = "Several jobs on one input"
    FRAMEWORKS = "Other frameworks"
    WRONG_USE = "Wrong use"


@dataclass(frozen=True)
class Behaviour:
    """One row.

    Attributes:
        reference: where it is documented.
        shows: what the reference shows, in Markdown.
        call: how one gets it with our input, in Markdown.
        needs: hardware that is absent here and that the rest of it needs; empty: none.
        note: where ours differs; empty: nowhere.
    """

    reference: Reference
    shows: str
    call: str
    needs: str = ""
    note: str = ""


def behaviour(
    reference: Reference, *, shows: str, call: str, needs: str = "", note: str = ""
) -> pytest.MarkDecorator:
    """Mark a test as one that shows a behaviour; the arguments are those of `Behaviour`."""
    return pytest.mark.behaviour(Behaviour(reference, shows, call, needs, note))
