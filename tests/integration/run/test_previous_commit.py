"""Images of the previous commit under this operator, and images of this one under the previous."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api import files, names
from testing.integration.cluster import DATASETS
from testing.integration.kubelet import IMAGE_USER, PodRunner, reason_not_to_run
from testing.releases.pods import InputPods, create_pods, image_env
from testing.releases.render import NAME
from testing.releases.sources import extract

ROOT = Path(__file__).parents[3]
TRAINER = ROOT / "testing" / "integration" / "numpy_trainer.py"
STEPWISE = ROOT / "testing" / "integration" / "stepwise_trainer.py"
ROWS = 40
ROWS_METRIC = "distributed_input_worker_rows"
Process = subprocess.Popen[str]
LogOf = Callable[[], str]
PARTS = frozenset({"dispatcher", "worker", "sidecar", "trainer"})
needs_containers = pytest.mark.skipif(bool(reason_not_to_run()), reason=reason_not_to_run())


@pytest.fixture(scope="module")
def code():
    """Yield a folder with the code of the previous commit, which all users can read."""
    # Not in /tmp, where containers have a volume.
    with tempfile.TemporaryDirectory(prefix="di-previous-", dir="/dev/shm") as folder:
        Path(folder).chmod(0o755)
        extract(Path(folder), "sidecar/src", "operator/src", "testing/releases/render.py")
        yield Path(folder)


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


def stop(process: Process) -> None:
    """Stop a container as Kubernetes does, and wait for its end."""
    process.terminate()
    assert process.wait(60) == 0


@needs_containers
@pytest.mark.parametrize(
    "previous",
    [{"worker", "trainer"}, {"sidecar", "dispatcher"}, PARTS],
    ids=["own image", "own sidecar image", "all pods"],
)
def test_images_of_the_previous_commit_run_under_this_operator(code, previous):
    pods = create_pods("rows:numbered", ROWS, pod_ports())
    assert sorted(read_rows(pods, dict.fromkeys(previous, code))) == list(range(ROWS))


@needs_containers
def test_images_of_this_commit_run_under_the_previous_operator(code):
    pods = create_pods("rows:numbered", ROWS, pod_ports(), code)
    assert sorted(read_rows(pods, {})) == list(range(ROWS))


@needs_containers
def test_a_trainer_reads_on_while_an_upgrade_and_a_rollback_replace_all_pods(code):
    rows, steps = 1600, iter(range(200))  # more than the sidecar reads ahead
    ports = first = pod_ports()
    before = create_pods("wide:wide", rows, first, code)
    found: list[int] = []
    with Pods(before.config) as pods:
        dispatcher = pods.start(before.dispatcher, code)
        worker = pods.start(before.worker, code)
        trainer, log = pods.start_trainer(before.trainer, STEPWISE, code, code)

        def read_steps(count: int) -> None:
            assert trainer.stdout is not None
            for _ in itertools.islice(steps, count):
                line = trainer.stdout.readline()
                assert line, log()
                found.extend(json.loads(line))
                print(file=trainer.stdin, flush=True)

        for replacing in (None, code):
            read_steps(5)
            replaced = pod_ports(dispatcher=first["dispatcher"])
            after = create_pods("wide:wide", rows, replaced, replacing)
            new = pods.start(after.worker, replacing)
            assert produced_rows(ports["worker-metrics"]) > 0
            stop(worker)
            stop(dispatcher)
            worker, ports = new, replaced
            dispatcher = pods.start(after.dispatcher, replacing)
            read_steps(20)
        read_steps(200)
        assert produced_rows(ports["worker-metrics"]) > 0
        trainer.wait(60)
    assert sorted(found) == list(range(rows))
