"""The mark that makes a test a row of docs/compatibility.md; see the package's docstring."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest


class Reference(Enum):
    """The documents that describe a behaviour: the page's sections, in order."""

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
    """One row of the page.

    Attributes:
        reference: the document that describes the behaviour.
        shows: the documented behaviour, in Markdown.
        call: the equivalent with DistributedInput, in Markdown.
        needs: hardware that the untested part needs; empty if nothing is untested.
        note: differences from the document; empty if there are none.
    """

    reference: Reference
    shows: str
    call: str
    needs: str = ""
    note: str = ""


def behaviour(
    reference: Reference, *, shows: str, call: str, needs: str = "", note: str = ""
) -> pytest.MarkDecorator:
    """Mark a test that shows a behaviour. The arguments are those of `Behaviour`."""
    return pytest.mark.behaviour(Behaviour(reference, shows, call, needs, note))
