"""Paths of shared files."""

from __future__ import annotations

from distributed_input.api import files


def test_files_of_an_input_are_below_the_mounts() -> None:
    assert files.below_mounts(files.config_file("train")) == "config/train.json"
    assert files.below_mounts(files.token_file("train")) == "tokens/train"
