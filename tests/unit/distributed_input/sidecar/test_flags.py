"""The sidecar's flags: several inputs, each with a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError
from distributed_input.sidecar import main


def config(folder: Path, *inputs: str) -> str:
    path = folder / f"{'-'.join(inputs)}.json"
    path.write_text(json.dumps({"inputs": {name: {"seed": len(name)} for name in inputs}}))
    return str(path)


def test_inputs_of_all_files_are_served(tmp_path: Path) -> None:
    found = main._configs([config(tmp_path, "train"), config(tmp_path, "eval", "test")])
    assert found == {name: InputConfig(seed=len(name)) for name in ("train", "eval", "test")}


def test_an_input_in_two_files_is_refused(tmp_path: Path) -> None:
    paths = [config(tmp_path, "train"), config(tmp_path, "train", "eval")]
    with pytest.raises(ConfigError, match="input train is in another file too"):
        main._configs(paths)


def test_what_an_earlier_life_left_in_the_folder_takes_no_room(tmp_path: Path) -> None:
    """A dataset that nobody took: its trainer writes it again for this life."""
    spec = {"dataset": {"entryPoint": "a:b"}, "sidecar": {"bufferBytes": 1 << 12}}
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps({"inputs": {"train": spec}}))
    for name in ("ring-1", "dataset-1"):
        (tmp_path / name).write_bytes(b"old")
    args = main._parser().parse_args(["--dispatcher", "127.0.0.1:9", "--config", str(path)])
    served = main._inputs(args, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        path.name,
        served.find("train", "").ring.path.name,
    }
    served.start()
    served.close()
