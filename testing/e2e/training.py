"""A Job of trainers that reads one input as long as a test wants, and the ledger of its rows."""

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
from testing.operator.running import eventually

NAME = "reads"
TRAINERS = 2
SECONDS = 120.0
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": False,
}
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Epoch:
    """What one trainer got in one epoch; times as of `time.time()`, stalls (when, seconds, whether
    between two epochs) of some length, and the seconds of all stalls.
    """

    epoch: int
    rows: tuple[int, ...]
    stalls: tuple[tuple[float, float, bool], ...]
    stalled: float
    begun: float
    ended: float

    @property
    def stall(self) -> float:
        """The part of the epoch that the trainer waited."""
        return self.stalled / (self.ended - self.begun)


class Training:
    """Input, trainers and ledger in one namespace.

    rows: of an epoch. row_seconds: what a worker needs for one. slow: the epochs, from the first
    until before the second, in which it needs four times that. step: seconds of a trainer's step.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        image: str,
        rows: int = 320,
        row_seconds: float = 0.01,
        slow: tuple[int, int] = (0, 0),
        step: float = 0.0,
    ) -> None:
        self.kubectl = kubectl
        self._image = image
        self._rows = rows
        self._row_seconds = row_seconds
        self._slow = list(slow)
        self._step = step

    def start(self, **workers: Any) -> None:
        """Apply all; `workers` is added to spec.workers. Returns with everybody's first batch."""
        files = {one: (_HERE / one).read_text() for one in ("rows.py", "read.py")}
        self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME},
                "data": files,
            },
            self.input(**workers),
            trainers(NAME, self._image, ["read.py", str(self._step)], TRAINERS),
        )
        eventually(lambda: len(self.first_batches()) == TRAINERS, SECONDS)

    def input(self, **workers: Any) -> dict[str, Any]:
        """The DistributedInput."""
        arguments = {"rows": self._rows, "seconds": self._row_seconds, "slow": self._slow}
        requests = {"cpu": "50m", "memory": "256Mi"}
        workers = {"replicas": 2, "resources": {"requests": requests}} | workers
        if "autoscaling" in workers:
            del workers["replicas"]
        return {
            "apiVersion": "distributed-input.dev/v1alpha1",
            "kind": "DistributedInput",
            "metadata": {"name": NAME},
            "spec": {
                "dataset": {
                    "entryPoint": "rows:dataset_fn",
                    "args": arguments,
                    "source": {"configMap": NAME},
                },
                "batching": {"globalBatchSize": 16},
                "partitions": 8,
                "numSplits": 32,
                "workers": workers,
                "sidecar": {"buffer": "1Mi"},
            },
        }

    # What it has done so far.

    def epochs(self) -> list[list[Epoch]]:
        """By trainer, those that it has finished."""
        return [
            [
                Epoch(
                    said["epoch"],
                    tuple(said["rows"]),
                    tuple(map(tuple, said["stalls"])),
                    said["stalled"],
                    said["begun"],
                    said["ended"],
                )
                for said in map(json.loads, self._log(pod).splitlines())
                if "epoch" in said
            ]
            for pod in self._pods()
        ]

    def first_batches(self) -> list[float]:
        """When the trainers got their first batches: those that have one."""
        said = (self._log(pod).partition("\n")[0] for pod in self._pods())
        return [float(json.loads(line)["first"]) for line in said if line]

    def goes_on(self, epochs: int = 2) -> list[list[Epoch]]:
        """Wait until everybody has finished so many epochs more; all of them are exact."""
        self.reads(max(map(len, self.epochs()), default=0) + epochs)
        return self.exact()

    def reads(self, epochs: int, seconds: float = SECONDS) -> None:
        """Wait until everybody has finished so many epochs in all."""
        # Not too often: every look runs kubectl several times, on the cores of who trains.
        eventually(lambda: min(map(len, self.epochs())) >= epochs, seconds, every=1)

    def exact(self) -> list[list[Epoch]]:
        """All finished epochs, by trainer; fails where a row was lost or came twice."""
        trainers = self.epochs()
        assert len(trainers) == TRAINERS
        for number, parts in enumerate(zip(*trainers, strict=False)):
            assert {one.epoch for one in parts} == {number}
            seen = Counter(row for one in parts for row in one.rows)
            missing = set(range(self._rows)) - set(seen)
            twice = [row for row, times in seen.items() if times > 1]
            assert not missing, f"epoch {number}: rows {sorted(missing)} were lost"
            assert not twice, f"epoch {number}: rows {sorted(twice)} came more than once"
            assert seen.total() == self._rows
        return trainers

    def longest_stalls(self, since: float) -> tuple[float, float]:
        """Seconds that any trainer waited for a batch since then: within an epoch, and between."""
        stalls = [
            (seconds, between)
            for trainer in self.epochs()
            for one in trainer
            for when, seconds, between in one.stalls
            if when + seconds > since
        ]
        within, between = (
            max((seconds for seconds, where in stalls if where == wanted), default=0.0)
            for wanted in (False, True)
        )
        return within, between

    # What a test does to it.

    def pace(self, seconds: float) -> None:
        """How long the trainers' steps take from now on."""
        self._tell("step", seconds)

    def finish(self) -> int:
        """End the training after the next epochs, all trainers after the same; how many it had."""
        self._tell("last", max(map(len, self.epochs())) + 2)
        self.kubectl.wait(f"job/{NAME}", "Complete", int(SECONDS))
        return len(self.exact()[0])

    def remove(self) -> None:
        """Delete all of it, and wait until it is gone."""
        self.kubectl(
            "delete", f"job/{NAME}", f"dinput/{NAME}", "--cascade=foreground", "--timeout=90s"
        )

    def _tell(self, name: str, value: float) -> None:
        for pod in self._pods():
            command = f"echo {value} > /tmp/.{name} && mv /tmp/.{name} /tmp/{name}"
            self.kubectl("exec", pod, "-c", "trainer", "--", "sh", "-c", command)

    # Pods.

    def workers(self) -> list[dict[str, Any]]:
        """Pods of workers that are not being deleted."""
        found = self.kubectl.list("pod", f"{INPUT_LABEL}={NAME},{COMPONENT_LABEL}={WORKER}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def workers_ready(self, count: int, seconds: float = SECONDS) -> float:
        """Wait until just so many are there, all ready; how long that took."""
        began = time.monotonic()

        def there() -> bool:
            pods = self.workers()
            return len(pods) == count and all(map(ready, pods))

        there.__doc__ = f"{count} ready workers"
        eventually(there, seconds)
        return time.monotonic() - began

    def trainers(self) -> list[dict[str, Any]]:
        """Pods of trainers, in the order of their index."""
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
    """A Job of so many pods beside sidecars for the input of its name; the ConfigMap of its name
    has the program, a file and its arguments.
    """
    container = {
        "name": "trainer",
        "image": image,
        "command": ["python", "-u", f"/code/{program[0]}", *program[1:]],
        "securityContext": _RESTRICTED,
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
    """Whether a pod is Ready."""
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def container_id(pod: dict[str, Any], name: str) -> str:
    """The runtime's name of a running container, be it a native sidecar."""
    status = pod["status"]
    every = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
    (found,) = (one["containerID"] for one in every if one["name"] == name)
    return str(found).partition("://")[2]


def restarts(pod: dict[str, Any]) -> int:
    """Of all its containers together."""
    status = pod["status"]
    every = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return sum(one["restartCount"] for one in every)
