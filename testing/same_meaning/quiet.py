"""Keeps TensorFlow and the servers quiet. Call `quiet` before TensorFlow is imported."""

from __future__ import annotations

import logging
import os
import warnings


def quiet() -> None:
    """Let only results be printed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
