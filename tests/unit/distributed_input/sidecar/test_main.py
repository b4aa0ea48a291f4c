from __future__ import annotations

import gc
import json
import weakref
from contextlib import closing
from pathlib import Path

import pytest

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.runtime.shutdown import Shutdown
from distributed_input.sidecar import main
from distributed_input.sidecar.inputs.registry import InputRegistry


def config(folder: Path, *inputs: str) -> str:
    path = folder / f"{'-'.join(inputs)}.json"
    path.write_text(json.dumps({"inputs": {name: {"seed": len(name)} for name in inputs}}))
    return str(path)


def test_the_inputs_of_all_config_files_are_served(tmp_path: Path) -> None:
    found = main._read_configs([config(tmp_path, "train"), config(tmp_path, "eval", "test")])
    assert found == {name: InputConfig(seed=len(name)) for name in ("train", "eval", "test")}


def test_an_input_in_two_config_files_is_refused(tmp_path: Path) -> None:
    paths = [config(tmp_path, "train"), config(tmp_path, "train", "eval")]
    with pytest.raises(ConfigError, match="input train is in another file too"):
        main._read_configs(paths)


@pytest.mark.parametrize("text", ["", "[]", '{"inputs": {}}', '{"inputs": 1}', "{}"])
def test_a_config_file_without_inputs_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "inputs.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"--config {path}: "):
        main._read_configs([str(path)])


def test_each_input_has_the_dispatcher_of_its_flag() -> None:
    flags = ["train=a:1", "eval=b:2"]
    assert main._dispatchers(flags, ["train", "eval"]) == {"train": "a:1", "eval": "b:2"}
    assert main._dispatchers(["a:1"], ["train"]) == {"train": "a:1"}
    with pytest.raises(ConfigError, match="INPUT=HOST:PORT"):
        main._dispatchers(["a:1"], ["train", "eval"])
    with pytest.raises(ConfigError, match="missing for input eval"):
        main._dispatchers(["train=a:1"], ["train", "eval"])


def test_an_input_has_its_certificate_or_its_token(tmp_path: Path) -> None:
    tls, tokens = tmp_path / "tls", tmp_path / "tokens"
    tls.mkdir()
    tokens.mkdir()
    (tokens / "train").write_text("secret")
    found = main._credentials(str(tls), str(tokens), "train")
    assert found.metadata() == (("authorization", "Bearer secret"),)
    (tls / "train").mkdir()
    with pytest.raises(UnavailableError, match=r"the certificate in .* cannot be used"):
        main._credentials(str(tls), str(tokens), "train")


def test_without_certificate_and_token_an_encrypted_sidecar_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no folder train, and input train has no token"):
        main._credentials(str(tmp_path), None, "train")
    assert not main._credentials(None, None, "train").required


def test_the_memory_limit_is_shared_by_the_inputs() -> None:
    assert main._available_bytes(None, [100]) is None
    assert main._available_bytes(1000, [100, 300]) == 300


def test_ranks_are_consumers_and_share_the_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"dataset": {"entryPoint": "a:b"}, "sidecar": {"bufferBytes": 1 << 12}}
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps({"inputs": {"train": spec}}))
    monkeypatch.setattr(main.heap, "memory_limit", lambda: 10 << 12)
    flags = ["--dispatcher", "127.0.0.1:9", "--config", str(path), "--consumer-index", "1"]
    flags += ["--consumer-count", "2", "--ranks-per-trainer"]

    def registry(ranks: str) -> InputRegistry:
        return main._registry(main._parser().parse_args([*flags, ranks]), tmp_path)

    with closing(registry("2")) as found:
        found.start()
        jobs = found.all()
        assert [(job.consumer, job.consumers) for job in jobs] == [(2, 4), (3, 4)]
        assert [job._available_bytes for job in jobs] == [4 << 12] * 2
    with closing(registry("1/2")) as found:
        found.start()
        (job,) = found.all()
        assert (job.consumer, job.consumers, job.config.name) == (0, 1, "train/copy-1")
    with pytest.raises(ConfigError, match="--ranks-per-trainer: '0' is neither"):
        registry("0")


def test_files_of_an_earlier_container_are_removed(tmp_path: Path) -> None:
    spec = {"dataset": {"entryPoint": "a:b"}, "sidecar": {"bufferBytes": 1 << 12}}
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps({"inputs": {"train": spec}}))
    for name in ("slots-1", "dataset-1"):
        (tmp_path / name).write_bytes(b"old")
    args = main._parser().parse_args(["--dispatcher", "127.0.0.1:9", "--config", str(path)])
    registry = main._registry(args, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        path.name,
        registry.find("train", "").slots.path.name,
    }
    registry.start()
    registry.close()


class Cycle:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


def test_ended_sessions_are_freed_while_the_sidecar_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, freed = Shutdown(grace=1.0), weakref.ref(Cycle())
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) == 2

    monkeypatch.setattr(stopping, "wait", wait)
    gc.disable()
    try:
        main._wait(stopping)
        assert freed() is None
        assert waited == [60, 60]
    finally:
        gc.enable()


def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inputs.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="not a file like"):
        main._read_configs([str(path)])
