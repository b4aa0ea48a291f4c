"""The operator's process in a fork of a zygote, whose clock may be wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from kubernetes.aio.config import kube_config

from distributed_input_operator import main as operator
from distributed_input_operator.controller import leader

SKEW_ENV = "DISTRIBUTED_INPUT_TEST_SKEW"
"""Seconds that the process's clock is ahead."""


def _skew(seconds: float) -> None:
    real = time.time

    class Skewed(datetime):
        """A datetime of the wrong clock."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Skewed:
            moved = super().now(tz) + timedelta(seconds=seconds)
            return cls.fromtimestamp(moved.timestamp(), tz)

    time.time = lambda: real() + seconds
    leader.datetime = Skewed


def main(argv: Sequence[str]) -> int:
    """Run the operator. Return its exit status."""
    if seconds := float(os.environ.get(SKEW_ENV, "0")):
        _skew(seconds)
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = os.environ["KUBECONFIG"]  # read before the fork
    return operator.main(argv)
