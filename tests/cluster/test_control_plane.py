"""The control plane of the tests works like a real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as kubernetes
from kubernetes import config, watch

from testing.cluster.binaries import version
from testing.cluster.control_plane import ControlPlane

_SECONDS = 30


def test_the_api_server_reports_the_version_in_go_mod(api):
    assert kubernetes.VersionApi(api).get_code().git_version == version("kubernetes")


def test_a_deployment_creates_a_pod_that_is_unschedulable(api, namespace):
    """This needs all four processes."""
    labels = {"app": "any"}
    container = {"name": "any", "image": "any"}
    apps: Any = kubernetes.AppsV1Api(api)
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    apps.create_namespaced_deployment(namespace, {"metadata": {"name": "any"}, "spec": spec})
    list_pods = kubernetes.CoreV1Api(api).list_namespaced_pod
    for event in watch.Watch().stream(list_pods, namespace, timeout_seconds=_SECONDS):
        for condition in event["object"].status.conditions or []:
            if condition.reason == "Unschedulable":
                assert "no nodes available" in condition.message
                return
    pytest.fail(f"the scheduler tried no pod within {_SECONDS} s")


def test_a_service_account_has_only_its_own_permissions(api, control_plane, namespace):
    core: Any = kubernetes.CoreV1Api(api)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "someone"}})
    path = control_plane.service_account_kubeconfig(namespace, "someone")
    assert path.stat().st_mode & 0o077 == 0
    with config.new_client_from_config(str(path)) as account_client:
        reviews: Any = kubernetes.AuthenticationV1Api(account_client)
        user = reviews.create_self_subject_review({}).status.user_info
        assert user.username == f"system:serviceaccount:{namespace}:someone"
        with pytest.raises(kubernetes.ApiException, match="cannot list resource"):
            kubernetes.CoreV1Api(account_client).list_namespaced_pod(namespace)


def test_objects_survive_a_restart_of_the_api_server(api, control_plane, namespace):
    core: Any = kubernetes.CoreV1Api(api)
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "kept"}})
    control_plane.api_server.stop(signal.SIGKILL)
    assert not control_plane.serves()
    control_plane.api_server.start()
    control_plane.wait_ready()
    assert core.read_namespaced_config_map("kept", namespace).metadata.name == "kept"


def test_no_process_survives_a_killed_test_run(tmp_path):
    """A killed run cannot clean up, so the kernel must kill its processes."""
    script = (
        "import pathlib, os, signal\n"
        "from testing.cluster.control_plane import ControlPlane\n"
        f"plane = ControlPlane(pathlib.Path({str(tmp_path)!r}))\n"
        "plane.etcd.start()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.run([sys.executable, "-c", script], env=env, timeout=_SECONDS)
    assert process.returncode == -signal.SIGKILL
    etcd = ControlPlane(tmp_path).etcd
    try:
        assert (tmp_path / "etcd.pid").exists()
        # The kernel sends the signal before this process learns of the death. The exit follows.
        assert etcd.wait_exit(_SECONDS)
    finally:
        etcd.stop()
