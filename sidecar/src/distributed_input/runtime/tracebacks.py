"""Short tracebacks: errors of public functions have the caller's lines, and not this package's.

A notebook shows some lines of source for each frame and for each cause, and the message is below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from distributed_input.api.errors import DatasetFnError, DistributedInputError

P = ParamSpec("P")
T = TypeVar("T")


def short(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with errors, and Ctrl-C, that have no frames below it.

    The messages contain the causes. Only an error of the user's code keeps its cause.
    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (DistributedInputError, KeyboardInterrupt) as error:
            cause = error.__cause__ if isinstance(error, DatasetFnError) else None
            raise error.with_traceback(None) from cause

    return called
