"""The checks of `distributed-input doctor`, with what they are to find as arguments."""

from __future__ import annotations

import json
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner.installation import (
    Check,
    Result,
    check_cluster,
    check_folder,
    check_packages,
    check_python,
    check_run_packages,
    check_shared_memory,
    check_sockets,
    check_tensorflow,
)

GOOD = {
    "distributed-input": "1.0",
    "grpcio": "1.80.0",
    "numpy": "2.4.6",
    "protobuf": "7.36.2",
    "tensorflow-cpu": "2.21.0rc1",
    "pydantic": "2.14",
    "pyyaml": "6.0.1",
    "xxhash": "3.4",
}
DEFINITION = {"spec": {"versions": [{"name": "v1beta1", "served": True}]}}
DEPLOYMENT = {
    "metadata": {"name": "op", "namespace": "system"},
    "spec": {"template": {"spec": {"containers": [{"image": "r/op:1.2.3"}]}}},
    "status": {"readyReplicas": 1},
}
CLUSTER: dict[str, Any] = {
    "config current-context": "kind\n",
    "config view": "team",
    "version": {"serverVersion": {"gitVersion": "v1.34.2"}},
    "get crd": DEFINITION,
    "get deployments": {"items": [DEPLOYMENT]},
    "auth": "yes\n",
}


def kubectl(answers: dict[str, Any]) -> Any:
    """Return a kubectl with fixed answers. An answer may be an error."""

    def run(*arguments: str) -> str:
        words = 2 if arguments[0] in ("get", "config") else 1
        answer = answers[" ".join(arguments[:words])]
        if callable(answer):
            return str(answer(*arguments))
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else json.dumps(answer)

    return run


def cluster(**answers: Any) -> dict[str, Check]:
    changed = {key.replace("_", " "): value for key, value in answers.items()}
    return {one.name: one for one in check_cluster(kubectl({**CLUSTER, **changed}))}


@pytest.mark.parametrize(
    ("version", "system", "result"),
    [
        ((3, 11), "Linux", Result.OK),
        ((3, 11), "Darwin", Result.WARNING),
        ((3, 9), "Linux", Result.FAILED),
        ((3, 14), "Linux", Result.FAILED),
    ],
)
def test_python(version, system, result):
    assert check_python(version, system).result is result


def test_packages():
    assert check_packages(GOOD.get).result is Result.OK
    old = check_packages({**GOOD, "protobuf": "4.25.0"}.get)
    assert old.result is Result.FAILED
    assert old.text == "protobuf 4.25.0: install 4.25.1 or later"


def test_tensorflow():
    assert check_tensorflow(GOOD.get).text == "tensorflow-cpu 2.21.0rc1"
    assert check_tensorflow({"tensorflow": "2.15.1"}.get).result is Result.FAILED
    assert check_tensorflow(lambda package: None).result is Result.WARNING


def test_the_packages_of_run():
    assert check_run_packages(GOOD.get).result is Result.OK
    missing = check_run_packages({**GOOD, "pyyaml": None}.get)
    assert missing.result is Result.WARNING
    assert "pip install 'distributed-input[run]'" in missing.text


def test_shared_memory(tmp_path):
    assert check_shared_memory(tmp_path, free=1 << 30).result is Result.OK
    small = check_shared_memory(tmp_path, free=64 << 20)  # the default of Docker
    assert small.result is Result.WARNING
    assert "buffers use the folder for temporary files, on a disk" in small.text
    assert "--shm-size" in small.text
    assert check_shared_memory(tmp_path / "none").result is Result.WARNING


@pytest.fixture
def folder(monkeypatch):
    """Yield the folder for temporary files. The paths of tmp_path are too long for sockets."""
    with tempfile.TemporaryDirectory() as created:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: created)
        yield Path(created)


def test_the_folder_and_the_sockets_of_a_run(folder):
    checks = {one.name: one for one in check_folder({})}
    assert {name: one.result for name, one in checks.items()} == {
        "folder": Result.OK,
        "sockets": Result.OK,
    }
    assert str(folder) in checks["folder"].text


@pytest.mark.parametrize("call", ["bind", "connect"])
def test_a_machine_without_unix_sockets(folder, call, monkeypatch):
    def refuse(_socket: socket.socket, _address: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket.socket, call, refuse)
    found = check_sockets(folder)
    assert found.result is Result.FAILED
    assert f"cannot connect to a Unix socket in {folder}: " in found.text
    assert "Operation not permitted" in found.text
    assert found.text.endswith("check the sandbox and the file system")
    assert list(folder.iterdir()) == []


def test_a_folder_that_a_run_cannot_use(folder, monkeypatch):
    (folder / "file").touch()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(folder / "file"))
    (found,) = check_folder({})
    assert (found.name, found.result) == ("folder", Result.FAILED)
    assert found.text.startswith("a run cannot create its folder: folder ")


def test_a_cluster_with_everything():
    found = cluster()
    assert {one.result for one in found.values()} == {Result.OK}
    assert found["cluster"].text == "Kubernetes v1.34.2, context kind"
    assert found["definition"].text == "DistributedInput v1beta1"
    assert found["operator"].text == "system/op, 1 ready, image r/op:1.2.3"


def test_no_cluster():
    found = cluster(version=ConfigError("connection refused"))
    assert set(found) == {"cluster"}
    assert found["cluster"].result is Result.WARNING
    assert found["cluster"].text.startswith("connection refused.")


def test_a_cluster_without_the_chart():
    found = cluster(get_crd=ConfigError("not found"), get_deployments={"items": []})
    assert "install the chart" in found["definition"].text
    assert "helm install" in found["operator"].text


def test_an_operator_that_is_not_ready_fails():
    found = cluster(get_deployments={"items": [{**DEPLOYMENT, "status": {}}]})
    assert found["operator"].result is Result.FAILED
    assert "kubectl describe deployment op -n system" in found["operator"].text


def test_missing_rights_are_named():
    found = cluster(auth=ConfigError("no"))["rights"]
    assert found.result is Result.WARNING
    for right in (
        *(
            "get distributedinputs",
            "get secrets",
            "get configmaps",
            "get services",
            "get pods",
            "list pods",
        ),
        *("create pods/portforward", "get pods/log"),
    ):
        assert right in found.text

    def only_list(*arguments: str) -> str:
        return "no" if arguments[2:4] == ("list", "pods") else "yes"

    assert "need: list pods. Ask" in cluster(auth=only_list)["rights"].text


@pytest.mark.parametrize(
    ("namespace", "context", "expected"),
    [("other", "team", "other"), (None, "team", "team"), (None, "", "default")],
)
def test_rights_are_those_in_a_namespace(namespace, context, expected):
    asked = set()

    def can(*arguments: str) -> str:
        asked.add(arguments[-2:])
        return "yes"

    run = kubectl({**CLUSTER, "auth": can, "config view": context})
    (rights,) = [one for one in check_cluster(run, namespace) if one.name == "rights"]
    assert asked == {("--namespace", expected)}
    assert rights.text.startswith(f"namespace {expected}: ")
