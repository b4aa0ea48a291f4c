"""Images of earlier releases under this operator, and images of this release under earlier ones."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api import files, names
from distributed_input.api.process_config import FIXED_FLAGS
from testing.integration.cluster import DATASETS
from testing.integration.kubelet import IMAGE_USER, PodRunner, reason_not_to_run
from testing.operator.processes import eventually
from testing.releases.pods import NAME, InputPods, create_pods, image_env
from testing.releases.sources import COMMITS, extract

RELEASES = sorted(COMMITS)
ROOT = Path(__file__).parents[3]
TRAINER = ROOT / "testing" / "integration" / "numpy_trainer.py"
STEPWISE = ROOT / "testing" / "integration" / "stepwise_trainer.py"
ROWS = 40
ROWS_METRIC = "distributed_input_worker_rows"
LOCAL = {"local": {"cpus": 1, "memory": "1Gi"}}
Process = subprocess.Popen[str]
LogOf = Callable[[], str]
SPEC: dict[str, Any] = {
    "dataset": {"type": "EntryPoint", "entryPoint": {"function": "rows:numbered", "args": {"rows": ROWS}}},
    "batching": {"globalBatchSize": 8},
    "partitions": 2,
    "sidecar": {"buffer": "4Mi"},
}
PARTS = frozenset({"dispatcher", "worker", "sidecar", "trainer"})
needs_containers = pytest.mark.skipif(bool(reason_not_to_run()), reason=reason_not_to_run())


@pytest.fixture(scope="module")
def codes() -> Iterator[Mapping[str, Path]]:
    """Yield a folder with the code of each release, which all users can read."""
    # Not in /tmp, where containers have a volume.
    with tempfile.TemporaryDirectory(prefix="di-releases-", dir="/dev/shm") as folder:
        Path(folder).chmod(0o755)
        found = {release: Path(folder) / release for release in RELEASES}
        for release, code in found.items():
            code.mkdir()
            extract(release, code, "sidecar/src", "operator/src")
        yield found


def free_ports(*parts: str) -> dict[str, int]:
    """Return a free port for each server of the pods."""
    with ExitStack() as stack:
        sockets = {one: stack.enter_context(socket.socket()) for one in parts}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        return {part: one.getsockname()[1] for part, one in sockets.items()}


def pod_ports(**used: int) -> dict[str, int]:
    """Return the ports of the pods of one input: new ones, except those that are given."""
    parts = ("dispatcher", "worker", "dispatcher-metrics", "worker-metrics", "trainer-metrics")
    return {**free_ports(*parts), **used}


class Pods:
    """The running pods of one input and its trainer. A context manager."""

    def __init__(self, config: Any) -> None:
        self._stack = ExitStack()
        self._objects = {
            ("configMap", names.shared(NAME)): config,
            ("secret", names.shared(NAME)): {files.TOKEN_KEY: "a-token-of-this-test"},
        }

    def start(self, deployment: Any, code: Path | None) -> Process:
        """Start a pod of a Deployment, and wait until it serves.

        Args:
            deployment: as an operator creates it.
            code: folder with the code of its image. None: this checkout.
        """
        template = deployment["spec"]["template"]
        pod = self._enter(template)
        (container,) = template["spec"]["containers"]
        process = pod.start(container, IMAGE_USER, image=image_env(code, DATASETS))
        pod.probe(process, container)
        return process

    def start_trainer(
        self, manifest: Any, program: Path, sidecar: Path | None, code: Path | None
    ) -> tuple[Process, LogOf]:
        """Start a trainer's pod without its worker, first its sidecar.

        Returns:
            The trainer, and a function that reads its log and that of its sidecar.
        """
        pod = self._enter(manifest)
        container = manifest["spec"]["initContainers"][-1]
        pod.probe(pod.start(container, IMAGE_USER, image=image_env(sidecar)), container)
        (trainer,) = manifest["spec"]["containers"]
        command = [sys.executable, str(program)]
        process = pod.start(trainer, IMAGE_USER, command, image_env(code))
        return process, lambda: pod.log(trainer) + pod.log(container)

    def start_local_worker(self, manifest: Any, code: Path | None) -> tuple[Process, LogOf]:
        """Start the worker of a trainer's pod. Return it, and a function that reads its log."""
        pod = self._enter(manifest)
        container, _ = manifest["spec"]["initContainers"]
        process = pod.start(container, IMAGE_USER, image=image_env(code, DATASETS))
        return process, lambda: pod.log(container)

    def _enter(self, manifest: Any) -> PodRunner:
        runner = PodRunner(manifest, self._objects, [names.dispatcher(NAME)])
        return self._stack.enter_context(runner)

    def __enter__(self) -> Pods:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def read_rows(created: InputPods, images: Mapping[str, Path]) -> list[int]:
    """Run all containers of the pods. Return the rows of the trainer.

    Args:
        created: as an operator creates them.
        images: folder with the code of each part. Default: this checkout.
    """
    with Pods(created.config) as pods:
        pods.start(created.dispatcher, images.get("dispatcher"))
        pods.start(created.worker, images.get("worker"))
        trainer, log = pods.start_trainer(
            created.trainer, TRAINER, images.get("sidecar"), images.get("trainer")
        )
        text, _ = trainer.communicate(timeout=120)
        assert trainer.returncode == 0, log()
    return [int(row) for row in json.loads(text)]


def produced_rows(port: int) -> float:
    """Return the number of rows that a worker has produced. port: of its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(one.split()[-1]) for one in lines if one.startswith(ROWS_METRIC))


def stop(process: Process, *, is_earlier: bool) -> None:
    """Stop a container as Kubernetes does, and wait for its end."""
    process.terminate()
    # Release 0.1.0 ends with status 1 if its end takes more than five seconds, on a busy machine.
    assert process.wait(60) in ((0, 1) if is_earlier else (0,))


@needs_containers
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "earlier",
    [{"worker", "trainer"}, {"sidecar", "dispatcher"}, PARTS],
    ids=["own image", "own sidecar image", "all pods"],
)
def test_images_of_an_earlier_release_run_under_this_operator(codes, release, earlier):
    # An earlier worker ignores where it may save states.
    spec = {**SPEC, "workers": {"stateDirectory": "/tmp/states"}}
    pods = create_pods(spec, ports=pod_ports())
    assert "stateDir" in json.dumps(pods.worker)
    rows = read_rows(pods, dict.fromkeys(earlier, codes[release]))
    assert sorted(rows) == list(range(ROWS))


@needs_containers
@pytest.mark.parametrize("release", RELEASES)
def test_images_of_this_release_run_under_an_earlier_operator(codes, release):
    pods = create_pods(SPEC, release, codes[release], pod_ports())
    assert sorted(read_rows(pods, {})) == list(range(ROWS))


@needs_containers
@pytest.mark.parametrize("release", RELEASES)
def test_a_worker_beside_a_trainer_of_an_earlier_dispatcher_gets_no_streams(codes, release):
    ports, code = pod_ports(), codes[release]
    created = create_pods({**SPEC, "workers": LOCAL}, ports=ports)
    with Pods(created.config) as pods:
        pods.start(created.dispatcher, code)
        pods.start(created.worker, None)
        _, log = pods.start_local_worker(created.trainer, None)
        eventually(lambda: "accepts no streams" in log(), 60)
        trainer, log = pods.start_trainer(created.trainer, TRAINER, code, None)
        text, _ = trainer.communicate(timeout=120)
        assert sorted(json.loads(text)) == list(range(ROWS)), log()
        assert produced_rows(ports["trainer-metrics"] + 1) == 0
        assert produced_rows(ports["worker-metrics"]) >= ROWS


@needs_containers
@pytest.mark.parametrize("release", RELEASES)
def test_an_earlier_image_does_not_start_as_a_worker_beside_a_trainer(codes, release):
    created = create_pods({**SPEC, "workers": LOCAL}, ports=pod_ports())
    with Pods(created.config) as pods:
        worker, log = pods.start_local_worker(created.trainer, codes[release])
        assert worker.wait(60) == 2
        assert "unrecognized arguments: --idle-cpus --pod pod-0" in log()


@needs_containers
@pytest.mark.parametrize("release", RELEASES)
def test_a_trainer_reads_on_while_an_upgrade_and_a_rollback_replace_all_pods(codes, release):
    rows, steps = 480, iter(range(60))
    dataset = {"entryPoint": "wide:wide", "args": {"rows": rows}}
    first = pod_ports()
    spec = {**SPEC, "dataset": dataset, "workers": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}}
    before = create_pods(spec, release, codes[release], first)
    found: list[int] = []
    with Pods(before.config) as pods:
        dispatcher = pods.start(before.dispatcher, codes[release])
        worker, ports = pods.start(before.worker, codes[release]), first
        trainer, log = pods.start_trainer(before.trainer, STEPWISE, codes[release], codes[release])

        def read_steps(count: int) -> None:
            assert trainer.stdout is not None
            for _ in itertools.islice(steps, count):
                line = trainer.stdout.readline()
                assert line, log()
                found.extend(json.loads(line))
                print(file=trainer.stdin, flush=True)

        for operator, code in (("", None), (release, codes[release])):
            read_steps(5)
            replaced = pod_ports(dispatcher=first["dispatcher"])
            after = create_pods(spec, operator, code, replaced)
            new = pods.start(after.worker, code)
            assert produced_rows(ports["worker-metrics"]) > 0
            stop(worker, is_earlier=code is None)
            stop(dispatcher, is_earlier=code is None)
            worker, ports = new, replaced
            dispatcher = pods.start(after.dispatcher, code)
            read_steps(20)
        read_steps(60)
        assert produced_rows(ports["worker-metrics"]) > 0
        trainer.wait(60)
    assert sorted(found) == list(range(rows))


@pytest.mark.parametrize("release", RELEASES)
def test_images_of_an_earlier_release_have_all_fixed_flags(codes, release):
    parts = ["dispatcher", "worker", "sidecar", "stock dispatcher", "stock worker"]
    found = ""
    for part in parts:
        command = [sys.executable, "-m", *f"distributed_input.{part}".split(), "--help"]
        env = {**os.environ, **image_env(codes[release])}
        found += subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True).stdout
    assert set(re.findall(r"--[a-z-]+", found)) >= FIXED_FLAGS


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {
            "dataset": {"type": "EntryPoint", "entryPoint": {"function": "a:b", "source": {"type": "ConfigMap", "configMap": {"name": "code"}}}},
            "determinism": "Relaxed",
            "workers": {"autoscaling": {"minReplicas": 1, "maxReplicas": 3}, "accelerator": {"resourceName": "nvidia.com/gpu"}, "placement": "NearTrainers", "spot": True, "podTemplate": {"spec": {"hostname": "x"}}, "template": {"spec": {"containers": [{"name": "worker", "image": "own:1", "env": [{"name": "KEY", "value": "v"}]}]}}},
            "sidecar": {"image": "own:2"},
            "tfDataService": {"staticSharding": False, "crossTrainerCache": "1Gi"},
        },
    ],
    ids=["defaults", "all fields"],
)
def test_an_upgrade_of_the_operator_changes_no_pod_template(codes, release, spec):
    before = create_pods(spec, release, codes[release])
    after = create_pods(spec, running=before)
    for component in ("dispatcher", "worker"):
        one, other = getattr(before, component), getattr(after, component)
        assert other["spec"]["template"] == one["spec"]["template"]
