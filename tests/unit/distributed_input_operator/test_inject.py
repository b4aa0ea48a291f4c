"""The command `distributed-input inject`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from distributed_input.api import names
from distributed_input_operator.inject import EXIT_CONFIG, main
from distributed_input_operator.injection.offline import dump_yaml
from tests.unit.distributed_input.api.resource.manifests import manifest
from tests.unit.distributed_input_operator.injection.trainer_pods import pod


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Flags for a pod and its input in two files."""
    trainer = {"apiVersion": "v1", "kind": "Pod", **pod(hostNetwork=True)}
    (tmp_path / "pod.yaml").write_text(dump_yaml([trainer]))
    (tmp_path / "input.yaml").write_text(manifest(name="train"))
    return ["-f", str(tmp_path / "pod.yaml"), "-f", str(tmp_path / "input.yaml")]


def first(text: str) -> Any:
    return next(iter(yaml.safe_load_all(text)))


def test_the_manifests_with_sidecars_are_printed(files: list[str], capsys: Any) -> None:
    assert main([*files, "--image", "sidecar:1"]) == 0
    printed = capsys.readouterr()
    (sidecar,) = first(printed.out)["spec"]["initContainers"]
    assert (sidecar["name"], sidecar["image"]) == (names.SIDECAR_CONTAINER, "sidecar:1")
    assert "spec.hostNetwork" in printed.err


def test_a_file_can_come_from_standard_input(
    files: list[str], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(manifest(name="train")))
    assert main([*files[:2], "-f", "-", "--image", "sidecar:1"]) == 0
    assert "initContainers" in first(capsys.readouterr().out)["spec"]


def test_an_error_is_printed_without_manifests(files: list[str], capsys: Any) -> None:
    assert main([*files[:2], "--image", "sidecar:1"]) == EXIT_CONFIG
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no DistributedInput 'train'" in printed.err


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, capsys: Any) -> None:
    assert main(["-f", str(tmp_path / "none.yaml")]) == EXIT_CONFIG
    assert "none.yaml: cannot be read" in capsys.readouterr().err
    (tmp_path / "latin.yaml").write_bytes(b"\xff")
    assert main(["-f", str(tmp_path / "latin.yaml")]) == EXIT_CONFIG
    assert "is not UTF-8 text" in capsys.readouterr().err
