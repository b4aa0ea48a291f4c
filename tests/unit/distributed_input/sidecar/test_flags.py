"""The sidecar's flags: several inputs, each with a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distributed_input.errors import ConfigError
from distributed_input.sidecar import main


def config(folder: Path, *inputs: str) -> str:
    path = folder / f"{'-'.join(inputs)}.json"
    path.write_text(json.dumps({"inputs": {name: {"of": name} for name in inputs}}))
    return str(path)


def test_inputs_of_all_files_are_served(tmp_path: Path) -> None:
    found = main._configs([config(tmp_path, "train"), config(tmp_path, "eval", "test")])
    assert found == {name: {"of": name} for name in ("train", "eval", "test")}


def test_an_input_in_two_files_is_refused(tmp_path: Path) -> None:
    paths = [config(tmp_path, "train"), config(tmp_path, "train", "eval")]
    with pytest.raises(ConfigError, match="input train is in another file too"):
        main._configs(paths)
