"""Inputs from the resource file."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner import spec

HEAD = "apiVersion: distributed-input.dev/v1beta1\nkind: DistributedInput\n"
FULL = (
    HEAD
    + """\
metadata: {name: train}
spec:
  dataset:
    type: EntryPoint
    entryPoint: {function: "digits:dataset_fn", source: {type: Path, path: code}}
  determinism: Relaxed
  workers: {replicas: 3, parallelism: 4}
  dispatcher: {port: 7070}
"""
)


def written(folder: Path, text: str) -> Path:
    file = folder / "input.yaml"
    file.write_text(text)
    if (folder / "code").is_dir():
        (folder / "code" / "digits.py").write_text("def dataset_fn(context): ...\n")
    return file


def test_the_resource_defines_the_processes(tmp_path):
    (tmp_path / "code").mkdir()
    (one,) = spec.load(written(tmp_path, FULL))
    assert (one.name, one.workers, one.parallelism) == ("train", 3, 4)
    assert (one.path, one.config.determinism) == (str(tmp_path / "code"), "relaxed")
    assert one.config.dataset.entry_point == "digits:dataset_fn"


def test_flags_override_the_resource(tmp_path):
    (tmp_path / "code").mkdir()
    (one,) = spec.load(written(tmp_path, FULL), workers=1, parallelism=2)
    assert (one.workers, one.parallelism, one.idle_cpus) == (1, 2, False)
    assert spec.load(written(tmp_path, FULL), workers=1, idle_cpus=True)[0].idle_cpus


def test_a_local_worker_of_the_resource_uses_idle_cpus(tmp_path):
    workers = "{replicas: 0, local: {cpus: 3, memory: 1Gi}}"
    file = written(tmp_path, f"{HEAD}metadata: {{name: a}}\nspec: {{workers: {workers}}}\n")
    (one,) = spec.load(file)
    assert (one.workers, one.parallelism, one.idle_cpus) == (1, 3, True)
    assert spec.load(file, parallelism=2)[0].parallelism == 2
    (one,) = spec.load(file, workers=2)
    assert (one.workers, one.parallelism, one.idle_cpus) == (2, None, False)


def test_autoscaling_starts_with_the_minimum(tmp_path):
    workers = "{autoscaling: {minReplicas: 2, maxReplicas: 8}}"
    text = f"{HEAD}metadata: {{name: a}}\nspec: {{workers: {workers}}}\n"
    (one,) = spec.load(written(tmp_path, text))
    assert one.workers == 2


def test_a_paused_input_needs_a_number_of_workers(tmp_path):
    file = written(tmp_path, f"{HEAD}metadata: {{name: a}}\nspec: {{workers: {{replicas: 0}}}}\n")
    with pytest.raises(ConfigError, match="set --workers N"):
        spec.load(file)
    assert spec.load(file, workers=2)[0].workers == 2


def test_the_same_name_in_two_namespaces_is_rejected(tmp_path):
    one = f"{HEAD}metadata: {{name: a, namespace: n}}\n"
    file = written(tmp_path, f"{one}---\n{one.replace('namespace: n', 'namespace: m')}")
    with pytest.raises(ConfigError, match="two inputs are named a"):
        spec.load(file)


def test_an_error_names_the_file_and_the_field(tmp_path):
    file = written(tmp_path, f"{HEAD}metadata: {{name: a}}\nspec: {{order: none}}\n")
    with pytest.raises(ConfigError, match=r"input\.yaml.*order"):
        spec.load(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        spec.load(tmp_path / "none.yaml")


def test_trainers_that_cannot_share_the_partitions_are_an_error(tmp_path):
    file = written(tmp_path, f"{HEAD}metadata: {{name: a}}\nspec:\n  partitions: 8\n")
    assert len(spec.load(file, trainers=4)) == 1
    with pytest.raises(ConfigError, match=r"input.yaml:5: spec.partitions: 3 trainers cannot"):
        spec.load(file, trainers=3)


def test_trainers_that_do_not_fit_the_batch_size_are_a_warning(tmp_path):
    """A trainer may replace the batch size, and with it the number of partitions."""
    text = f"{HEAD}metadata: {{name: a}}\nspec:\n  batching: {{globalBatchSize: 64}}\n"
    file = written(tmp_path, text)
    warnings: list[str] = []
    for trainers in (1, 3, 4):
        assert len(spec.load(file, trainers=trainers, warn=warnings.append)) == 1
    (found,) = warnings
    text = "spec.partitions: 3 trainers cannot divide 8 partitions. Use 1, 2, 4 or 8 trainers"
    assert found.startswith(f"warning: {file}: a: {text}")


def test_a_folder_whose_name_is_not_utf_8_is_refused_in_ascii(tmp_path):
    folder = tmp_path / "caf\udce9"  # the byte 0xe9, which is no UTF-8
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"caf\\udce9.*is not UTF-8.*PYTHONUTF8=1") as caught:
        spec.load(written(folder, FULL))
    assert str(caught.value).isascii()
