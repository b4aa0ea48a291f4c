"""The dispatcher of an input in a cluster. kubectl is a script with fixed answers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.runner.kubectl import (
    INPUTS,
    ClusterInput,
    forwarded,
    problems_of,
)

KUBECTL = """\
#!{python}
import json, pathlib, sys, time
folder = pathlib.Path(__file__).parent
with open(folder / "calls", "a") as calls:
    print(*sys.argv[1:], file=calls)
answer = json.loads((folder / "answers.json").read_text())[sys.argv[1] + " " + sys.argv[2]]
if "error" in answer:
    sys.exit(answer["error"])
if sys.argv[1] == "get":
    print(json.dumps(answer))
else:
    print(answer["line"], flush=True)
    time.sleep(300)
"""
INPUT = {
    "spec": {"encryption": "None"},
    "status": {"conditions": [{"type": "Ready", "status": "True", "message": "ready"}]},
}
ANSWERS = {
    f"get {INPUTS}": INPUT,
    "get secret": {"data": {"token": "c2VjcmV0"}},
    "port-forward service/train-dispatcher": {"line": "Forwarding from 127.0.0.1:4567 -> 7070"},
}
NAMESPACED = {
    **ANSWERS,
    "port-forward --namespace": ANSWERS["port-forward service/train-dispatcher"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of a kubectl that comes first in PATH."""
    script = tmp_path / "kubectl"
    script.write_text(KUBECTL.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def opened(folder: Path, namespace: str | None = None, **answers: Any) -> ClusterInput:
    changed = {key.replace("_", " "): value for key, value in answers.items()}
    (folder / "answers.json").write_text(json.dumps({**NAMESPACED, **changed}))
    with forwarded("train", namespace, 10) as found:
        return found


def test_the_port_is_forwarded_and_the_token_is_decoded(folder):
    assert opened(folder, "team") == ClusterInput("127.0.0.1:4567", "secret", ())
    assert (folder / "calls").read_text().splitlines() == [
        f"get {INPUTS} train --namespace team --output json",
        "get secret train-distributed-input --namespace team --output json",
        "port-forward --namespace team service/train-dispatcher :7070",
    ]


@pytest.mark.parametrize("encryption", ["All", "Control"])
def test_an_encrypted_input_has_a_folder_with_the_certificate_of_a_viewer(folder, encryption):
    resource = {"spec": {"encryption": encryption}}
    (folder / "answers.json").write_text(
        json.dumps(
            {
                **ANSWERS,
                f"get {INPUTS}": resource,
                "get secret": {"data": {"viewer.key": "a2V5"}},
                "get configmap": {"data": {"ca.crt": "ca", "viewer.crt": "crt", "worker.crt": "x"}},
            }
        )
    )
    with forwarded("train", None, 10) as found:
        assert found.tls_folder is not None
        assert found.token == ""
        assert found.tls_folder.stat().st_mode & 0o77 == 0
        files = {path.name: path.read_text() for path in found.tls_folder.iterdir()}
    assert files == {"tls.crt": "crt", "tls.key": "key", "ca.crt": "ca"}
    assert not found.tls_folder.exists()
    calls = (folder / "calls").read_text()
    assert "get secret train-distributed-input-tls " in calls
    assert "get configmap train-distributed-input-tls " in calls


def test_without_a_namespace_the_kubeconfig_decides(folder):
    assert opened(folder).address == "127.0.0.1:4567"
    assert "--namespace" not in (folder / "calls").read_text()


def test_what_kubectl_refuses_is_an_error(folder):
    refusal = {"error": 'secrets "train-distributed-input" is forbidden'}
    with pytest.raises(
        ConfigError, match=r"^`kubectl get secret train-.*`: secrets .* forbidden\n"
    ):
        opened(folder, get_secret=refusal)


def test_only_the_last_line_of_kubectls_message_is_shown(folder):
    refused = "The connection to the server localhost:8080 was refused"
    kind = f"get {INPUTS}"
    with pytest.raises(ConfigError) as caught:
        opened(
            folder, None, **{kind: {"error": f"E1123 memcache.go\nE1123 memcache.go\n{refused}"}}
        )
    assert str(caught.value) == (
        f"`kubectl {kind} train --output json`: {refused}\n  `distributed-input doctor` checks the "
        "access to the cluster."
    )
    missing = 'Error from server (NotFound): "train" not found'
    with pytest.raises(ConfigError, match=r'"train" not found$'):
        opened(folder, None, **{kind: {"error": missing}})


def test_a_dispatcher_that_cannot_be_reached_has_the_inputs_problems(folder):
    status = {"conditions": [condition("Unschedulable", "True", "no node has 8 CPUs")]}
    answers = {
        **ANSWERS,
        f"get {INPUTS}": {**INPUT, "status": status},
        "port-forward service/train-dispatcher": {"error": "error: unable to forward: pod Pending"},
    }
    (folder / "answers.json").write_text(json.dumps(answers))
    with pytest.raises(UnavailableError) as caught:
        with forwarded("train", None, 10):
            pass
    assert str(caught.value) == (
        "the dispatcher of train cannot be reached: error: unable to forward: pod Pending\n"
        "  Unschedulable is True (Because): no node has 8 CPUs"
    )


def test_without_kubectl_the_remedy_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="kubectl is not installed: install it, or forward"):
        with forwarded("train", None, 10):
            pass


def condition(kind: str, status: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Because", "message": message}


def test_each_problem_is_reported_once():
    conditions = [
        condition("Ready", "False", "1 of 2 workers is ready"),
        condition("Reconciling", "True", "1 of 2 workers is ready"),
        condition("Stalled", "False", "1 of 2 workers is ready"),
        condition("DispatcherReady", "True", "the dispatcher is ready"),
        condition("ScalingLimited", "True", "more workers cannot help"),
    ]
    workers = {"requested": 8, "desired": 2}
    assert problems_of({"status": {"conditions": conditions, "workers": workers}}) == (
        "Ready is False (Because): 1 of 2 workers is ready",
        "ScalingLimited is True (Because): more workers cannot help",
        "budgets grant 2 of the 8 workers that the input needs: see `kubectl describe inputpolicy "
        "cluster`",
    )
    assert problems_of({}) == ()
