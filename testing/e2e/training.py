"""A Job of trainers that reads one input until a test stops it, and the record of its rows."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed_input.api.names import (
    COMPONENT_LABEL,
    INJECT_LABEL,
    INPUT_LABEL,
    INPUTS_ANNOTATION,
    WORKER,
)
from testing.cluster.kubectl import Kubectl
from testing.operator.processes import eventually, template

NAME = "reads"
TRAINERS = 2
SECONDS = 120.0
_SECURITY_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": False,
}
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Epoch:
    """The record of one trainer's epoch.

    stalls: (start time, seconds, whether between two epochs) of each longer wait for a batch.
    stalled: seconds of all waits. begun, ended: as of `time.time()`.
    """

    epoch: int
    rows: list[int]
    stalls: list[tuple[float, float, bool]]
    stalled: float
    begun: float
    ended: float

    @property
    def stall_ratio(self) -> float:
        """Return the share of the epoch that the trainer waited."""
        return self.stalled / (self.ended - self.begun)


class Training:
    """An input, its trainers and the record of their rows in one namespace.

    rows: rows per epoch. row_seconds: seconds that a worker needs per row. slow: (first epoch, end)
    of the epochs in which a row takes four times as long. step: seconds of a trainer's step.
    encryption: as in the input's spec. None: the input has no such field.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        image: str,
        rows: int = 320,
        row_seconds: float = 0.01,
        slow: tuple[int, int] = (0, 0),
        step: float = 0.0,
        encryption: str | None = None,
    ) -> None:
        self.kubectl = kubectl
        self._image = image
        self._rows = rows
        self._row_seconds = row_seconds
        self._slow = list(slow)
        self._step = step
        self._encryption = encryption

    def start(self, **workers: Any) -> None:
        """Create all objects and wait for the first batch of every trainer.

        workers: additional fields of spec.workers.
        """
        files = {one: (_HERE / one).read_text() for one in ("rows.py", "trainer.py")}
        self.kubectl.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": files},
            self.input(**workers),
            trainers(NAME, self._image, ["trainer.py", str(self._step)], TRAINERS),
        )
        eventually(lambda: len(self.first_batches()) == TRAINERS, SECONDS)

    def input(self, **workers: Any) -> dict[str, Any]:
        """Return the DistributedInput."""
        arguments = {"rows": self._rows, "seconds": self._row_seconds, "slow": self._slow}
        requests = {"cpu": "50m", "memory": "256Mi"}
        container = {"resources": {"requests": requests}}
        container |= {key: workers.pop(key) for key in ("image", "env") if key in workers}
        workers = {"replicas": 2, **template(**container)} | workers
        if "autoscaling" in workers:
            del workers["replicas"]
        return {
            "apiVersion": "distributed-input.dev/v1beta1",
            "kind": "DistributedInput",
            "metadata": {"name": NAME},
            "spec": {
                "dataset": {
                    "type": "EntryPoint",
                    "entryPoint": {
                        "function": "rows:dataset_fn",
                        "args": arguments,
                        "source": {"type": "ConfigMap", "configMap": {"name": NAME}},
                    },
                },
                "batching": {"globalBatchSize": 16},
                "partitions": 8,
                "numSplits": 32,
                "workers": workers,
                "sidecar": {"buffer": "1Mi"},
                **({"encryption": self._encryption} if self._encryption else {}),
            },
        }

    def epochs(self) -> list[list[Epoch]]:
        """Return the finished epochs of each trainer."""
        return [
            [
                Epoch(**record)
                for record in map(json.loads, self._log(pod).splitlines())
                if "epoch" in record
            ]
            for pod in self._pods()
        ]

    def first_batches(self) -> list[float]:
        """Return the times of the trainers' first batches. Skip trainers without one."""
        lines = (self._log(pod).partition("\n")[0] for pod in self._pods())
        return [float(json.loads(line)["first"]) for line in lines if line]

    def wait_for_more_epochs(self, epochs: int = 2) -> list[list[Epoch]]:
        """Wait until every trainer has finished `epochs` more. Verify and return all epochs."""
        self.wait_for_epochs(max(map(len, self.epochs()), default=0) + epochs)
        return self.verify_epochs()

    def wait_for_epochs(self, epochs: int, seconds: float = SECONDS) -> None:
        """Wait until every trainer has finished `epochs` in total."""
        # Poll slowly: each poll runs kubectl several times, on the cores that also train.
        eventually(lambda: min(map(len, self.epochs())) >= epochs, seconds, every=1)

    def verify_epochs(self) -> list[list[Epoch]]:
        """Return all finished epochs by trainer. Fail if a row is missing or duplicated."""
        trainers = self.epochs()
        assert len(trainers) == TRAINERS
        for number, records in enumerate(zip(*trainers, strict=False)):
            assert {one.epoch for one in records} == {number}
            counts = Counter(row for one in records for row in one.rows)
            missing = set(range(self._rows)) - set(counts)
            twice = [row for row, times in counts.items() if times > 1]
            assert not missing, f"epoch {number}: rows {sorted(missing)} are missing"
            assert not twice, f"epoch {number}: rows {sorted(twice)} arrived more than once"
            assert counts.total() == self._rows
        return trainers

    def longest_stalls(self, since: float) -> tuple[float, float]:
        """Return the longest wait for a batch after `since`: within an epoch, and between two."""
        stalls = [
            (seconds, between)
            for trainer in self.epochs()
            for one in trainer
            for when, seconds, between in one.stalls
            if when + seconds > since
        ]
        within, between = (
            max((seconds for seconds, where in stalls if where == between_epochs), default=0.0)
            for between_epochs in (False, True)
        )
        return within, between

    def set_step_seconds(self, seconds: float) -> None:
        """Set the length of the trainers' steps."""
        self._write_setting("step", seconds)

    def finish(self) -> int:
        """Stop all trainers after the same epoch. Return the number of epochs."""
        self._write_setting("last", max(map(len, self.epochs())) + 2)
        self.kubectl.wait(f"job/{NAME}", "Complete", int(SECONDS))
        return len(self.verify_epochs()[0])

    def remove(self) -> None:
        """Delete the Job and the input, and wait until they are gone."""
        self.kubectl(
            "delete", f"job/{NAME}", f"dinput/{NAME}", "--cascade=foreground", "--timeout=90s"
        )

    def _write_setting(self, name: str, value: float) -> None:
        for pod in self._pods():
            command = f"echo {value} > /tmp/.{name} && mv /tmp/.{name} /tmp/{name}"
            self.kubectl("exec", pod, "-c", "trainer", "--", "sh", "-c", command)

    def workers(self) -> list[dict[str, Any]]:
        """Return the worker pods that are not being deleted."""
        found = self.kubectl.list("pod", f"{INPUT_LABEL}={NAME},{COMPONENT_LABEL}={WORKER}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def wait_for_workers(self, count: int, seconds: float = SECONDS) -> float:
        """Wait until exactly `count` workers exist and are ready. Return the seconds."""
        began = time.monotonic()

        def workers_are_ready() -> bool:
            pods = self.workers()
            return len(pods) == count and all(map(ready, pods))

        workers_are_ready.__doc__ = f"{count} ready workers"
        eventually(workers_are_ready, seconds)
        return time.monotonic() - began

    def trainers(self) -> list[dict[str, Any]]:
        """Return the trainer pods in the order of their index."""
        return [self.kubectl.get("pod", name) for name in self._pods()]

    def _pods(self) -> list[str]:
        found = self.kubectl.list("pod", f"job-name={NAME}")
        index = "batch.kubernetes.io/job-completion-index"
        found.sort(key=lambda pod: int(pod["metadata"]["annotations"][index]))
        return [pod["metadata"]["name"] for pod in found]

    def _log(self, pod: str) -> str:
        if self.kubectl.get("pod", pod)["status"]["phase"] == "Pending":
            return ""
        return self.kubectl("logs", pod, "-c", "trainer")


def trainers(name: str, image: str, program: list[str], count: int) -> dict[str, Any]:
    """Return a Job of `count` trainer pods with injected sidecars.

    name: of the Job, the input and the ConfigMap with the program. program: a file of the ConfigMap
    and its arguments.
    """
    container = {
        "name": "trainer",
        "image": image,
        "command": ["python", "-u", f"/code/{program[0]}", *program[1:]],
        "securityContext": _SECURITY_CONTEXT,
        "volumeMounts": [{"name": "code", "mountPath": "/code"}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": 0,
            "template": {
                "metadata": {
                    "labels": {INJECT_LABEL: "true"},
                    "annotations": {INPUTS_ANNOTATION: name},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": [{"name": "code", "configMap": {"name": name}}],
                },
            },
        },
    }


def ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod is Ready."""
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def container_id(pod: dict[str, Any], name: str) -> str:
    """Return the ID of a running container or native sidecar in the container runtime."""
    status = pod["status"]
    statuses = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
    (found,) = (one["containerID"] for one in statuses if one["name"] == name)
    return str(found).partition("://")[2]


def restarts(pod: dict[str, Any]) -> int:
    """Return the number of restarts of all containers of a pod."""
    status = pod["status"]
    statuses = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return sum(one["restartCount"] for one in statuses)
