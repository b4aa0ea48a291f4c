"""Owners whose pods have several templates, such as a master and its workers.

The trainers are the pods of all templates that request the same inputs. Their index counts through
these templates in the order of the object, so it is the rank of the pod in the kind's own launcher.
What numbers the pods of one template:

| Kind | Pods | Number of a pod | Source |
|---|---|---|---|
| JobSet, also of a TrainJob | replicatedJobs | labels of JobSet, completion index | JobSet 0.10 |
| PyTorchJob | Master, Worker | label replica-index | training-operator 1.9 |
| MPIJob | Worker; the launcher if it runs ranks | end of the pod's name | mpi-operator 0.8 |
| RayCluster, also of a RayJob | head, worker groups | labels of replica and host | KubeRay 1.7 |
| LeaderWorkerSet | leader and workers of each replica | end of the pod's name | LWS 0.10 |
| Volcano Job | tasks | label task-index | Volcano 1.15 |

These controllers create a pod again with the number of the pod that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names
from distributed_input_operator.injection.owners import (
    COMPLETION_INDEX,
    JOB,
    JOB_SET,
    RAY_CLUSTER,
    RAY_JOB,
    TRAIN_JOB,
    Owners,
    check_whole,
    completions_of,
    title,
)
from distributed_input_operator.injection.trainer_pod import (
    MAX_DIGITS,
    Manifest,
    RefusedError,
    TrainerRank,
    annotations_of,
    controller,
    labels_of,
    literal,
    requested_inputs,
)
from distributed_input_operator.objects.kind import Kind

PYTORCH_JOB = Kind("PyTorchJob", "kubeflow.org", "v1", "pytorchjobs", ("get",))
MPI_JOB = Kind("MPIJob", "kubeflow.org", "v2beta1", "mpijobs", ("get",))
LEADER_WORKER_SET = Kind(
    "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", ("get",)
)
VOLCANO_JOB = Kind("Job", "batch.volcano.sh", "v1alpha1", "jobs", ("get",))

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"
RAY_NODE_TYPE = "ray.io/node-type"
RAY_GROUP = "ray.io/group"
RAY_REPLICA_INDEX = "ray.io/worker-group-replica-index"
RAY_HOST_INDEX = "ray.io/replica-host-index"
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
TASK = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
_RAY_HEAD = "headGroupSpec"
"""No worker group has this name: names of pods have no capital letters."""


@dataclass(frozen=True)
class PodSet:
    """The pods of an object that have one template."""

    name: str
    count: int
    template: Manifest
    limits: tuple[int, int] | None = None
    """The least and the most pods, if a controller may change their number."""


@dataclass(frozen=True)
class _Place:
    """The place of a pod in its object."""

    pod_set: str | None
    index: int | None
    """In the pod set. None if nothing numbers the pods: a pod set of one pod does not need it."""
    replica: int = 0
    """If the object has all its pod sets several times."""


def _rank(
    pod: Manifest,
    owners: Owners,
    count: int | None,
    pod_sets: Iterable[PodSet],
    place: _Place,
    replicas: int = 1,
) -> TrainerRank:
    """Return the rank of a pod among the pods of all pod sets that request the same inputs.

    Args:
        pod: the pod.
        owners: the object with the pod sets, then what controls it.
        count: number of trainers in the pod's annotation, if it has one.
        pod_sets: of the object, in the order of their ranks.
        place: of the pod.
        replicas: how often the object has the pod sets.
    """
    name, inputs = title(owners[0]), set(requested_inputs(pod))
    before, size, total = None, 0, 0
    for one in pod_sets:
        template = {"metadata": one.template.get("metadata") or {}}
        if labels_of(template).get(names.INJECT_LABEL) != "true":
            continue
        others = set(requested_inputs(template))
        if one.name == place.pod_set:
            before, size = total, one.count
        if others == inputs:
            _check_fixed(owners[0], one, count)
            total += one.count
        elif others & inputs:
            raise RefusedError(
                f"{name}: the pod template of {one.name} shares only "
                f"{', '.join(sorted(others & inputs))} with other pod templates: give them all "
                f"the same annotation {names.INPUTS_ANNOTATION}, or different inputs"
            )
    if before is None:
        raise RefusedError(
            f"{name}: the pod belongs to no pod template with label {names.INJECT_LABEL}: set the "
            f"label and annotations in the pod templates of the {owners[0]['kind']}"
        )
    check_whole(owners, total * replicas, count)
    index = 0 if place.index is None and size == 1 else place.index
    if index is None:
        raise RefusedError(
            f"{name}: nothing numbers the {size} pods of {place.pod_set}: "
            + _NUMBERED.get(owners[0]["kind"], "its controller must set their labels")
        )
    if index >= size or place.replica >= replicas:
        # The object was read before it was scaled, or it has more pods during an update.
        number = place.replica * size + index
        raise RefusedError(
            f"{name} has {size * replicas} pods of {place.pod_set}, but this one has index "
            f"{number}: retry. An update must not add pods (maxSurge: 0)"
        )
    return TrainerRank(literal(place.replica * total + before + index), total * replicas, name)


_NUMBERED = {
    RAY_CLUSTER.kind: "use KubeRay 1.6 or later with its feature gate RayMultiHostIndexing, or "
    "worker groups of one pod (replicas: 1), whose order gives the index",
    VOLCANO_JOB.kind: f"use Volcano 1.9 or later, which sets the label {TASK_INDEX}",
}
"""What to do if a pod of this kind has no number."""


def _check_fixed(owner: Manifest, pod_set: PodSet, count: int | None) -> None:
    """Raise RefusedError if a controller may change the number of pods while they train.

    `count`: number of trainers in the pod's annotation, if it has one.
    """
    least, most = pod_set.limits or (0, 0)
    if least == most or count is not None:
        return
    raise RefusedError(
        f"{title(owner)}: its autoscaling allows {least} to {most} pods of {pod_set.name}, but "
        "trainers that share an input need their number when they start: set minReplicas and "
        f'maxReplicas to the same number, or annotation {names.CONSUMERS_ANNOTATION}: "N" in the '
        "pod template, if all N pods run"
    )


def _number(text: str | None) -> int | None:
    if not text or len(text) > MAX_DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    return int(text)


def _integer(spec: Mapping[str, Any], field: str, default: int) -> int:
    value = spec.get(field)
    return default if value is None else int(value)


def job_set_rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a JobSet."""
    if len(owners) < 2 or not (JOB.describes(owners[0]) and JOB_SET.describes(owners[1])):
        return None
    completions_of(owners[0], count)
    labels = labels_of(pod)
    sets, each = [], 0
    for one in owners[1]["spec"]["replicatedJobs"]:
        spec = one["template"]["spec"]
        pods = int(spec.get("completions") or spec.get("parallelism") or 1)
        sets.append(PodSet(one["name"], pods * int(one.get("replicas", 1)), spec["template"]))
        if one["name"] == labels.get(REPLICATED_JOB):
            each = pods
    job, index = _number(labels.get(JOB_INDEX)), _number(annotations_of(pod).get(COMPLETION_INDEX))
    place = None if job is None or index is None else job * each + index
    return _rank(pod, owners[1:], count, sets, _Place(labels.get(REPLICATED_JOB), place))


def pytorch_job_rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a PyTorchJob: the master's is 0, as PET_NODE_RANK."""
    if not (owners and PYTORCH_JOB.describes(owners[0])):
        return None
    spec, labels = owners[0]["spec"], labels_of(pod)
    of = {name.lower(): one for name, one in spec["pytorchReplicaSpecs"].items()}
    elastic = spec.get("elasticPolicy") or {}
    least, most = elastic.get("minReplicas"), elastic.get("maxReplicas")
    limits = None if least is None or most is None else (int(least), int(most))
    sets = [
        PodSet(name, _integer(of[name], "replicas", 1), of[name].get("template") or {}, may_be)
        for name, may_be in (("master", None), ("worker", limits))
        if of.get(name)
    ]
    place = _Place(labels.get(REPLICA_TYPE), _number(labels.get(REPLICA_INDEX)))
    return _rank(pod, owners, count, sets, place)


def is_launcher(pod: Manifest, owners: Owners) -> bool:
    """Whether a pod is the launcher of an MPIJob, and all ranks run in workers."""
    found = _mpi_job(owners)
    if not found or labels_of(pod).get(JOB_ROLE) != "launcher":
        return False
    return not _launcher_has_ranks(found[0]["spec"])


def _mpi_job(owners: Owners) -> Owners:
    """Return the MPIJob of a pod and what controls it. The launcher has a Job in between."""
    launcher = len(owners) > 1 and JOB.describes(owners[0])
    found = owners[1:] if launcher else owners
    return found if found and MPI_JOB.describes(found[0]) else ()


def _launcher_has_ranks(spec: Mapping[str, Any]) -> bool:
    workers = spec["mpiReplicaSpecs"].get("Worker") or {}
    return bool(spec.get("runLauncherAsWorker")) or _integer(workers, "replicas", 0) == 0


def mpi_job_rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of an MPIJob: the order of its hostfile.

    The label replica-index of the workers begins at 0 or 1, which depends on the release.
    """
    found = _mpi_job(owners)
    if not found:
        return None
    spec, role = found[0]["spec"], labels_of(pod).get(JOB_ROLE)
    launcher, worker = (spec["mpiReplicaSpecs"].get(name) or {} for name in ("Launcher", "Worker"))
    sets = [PodSet("worker", _integer(worker, "replicas", 0), worker.get("template") or {})]
    if _launcher_has_ranks(spec):
        sets.insert(0, PodSet("launcher", 1, launcher.get("template") or {}))
    last = str(pod["metadata"].get("name", "")).rpartition("-")[2]
    place = _Place(role, 0 if role == "launcher" else _number(last))
    return _rank(pod, found, count, sets, place)


def ray_cluster_rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a RayCluster: the head's is 0 if its template has the label."""
    if not (owners and RAY_CLUSTER.describes(owners[0])):
        return None
    spec, labels = owners[0]["spec"], labels_of(pod)
    sets = [PodSet(_RAY_HEAD, 1, spec["headGroupSpec"]["template"])]
    group = _RAY_HEAD if labels.get(RAY_NODE_TYPE) == "head" else labels.get(RAY_GROUP)
    index = _number(labels.get(RAY_REPLICA_INDEX))
    for one in spec.get("workerGroupSpecs") or ():
        least, most = _integer(one, "minReplicas", 0), _integer(one, "maxReplicas", (1 << 31) - 1)
        replicas = min(max(_integer(one, "replicas", 0), least), most)
        hosts = max(_integer(one, "numOfHosts", 1), 1)
        limits = (least * hosts, most * hosts) if spec.get("enableInTreeAutoscaling") else None
        sets.append(PodSet(one["groupName"], replicas * hosts, one["template"], limits))
        if one["groupName"] == group and hosts > 1:
            host = _number(labels.get(RAY_HOST_INDEX))
            index = None if index is None or host is None else index * hosts + host
    return _rank(pod, owners, count, sets, _Place(group, index))


def leader_worker_set_rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a LeaderWorkerSet, which counts through all its replicas.

    The pods are named NAME-REPLICA and NAME-REPLICA-WORKER. A webhook sets some of their labels,
    and it may be called later.
    """
    if len(owners) < 2 or not LEADER_WORKER_SET.describes(owners[1]):
        return None
    owner = owners[1]
    spec = owner["spec"]["leaderWorkerTemplate"]
    worker, size = spec["workerTemplate"], _integer(spec, "size", 1)
    sets = [
        PodSet("leader", 1, spec.get("leaderTemplate") or worker),
        PodSet("worker", size - 1, worker),
    ]
    numbers = str(pod["metadata"].get("name", "")).removeprefix(f"{owner['metadata']['name']}-")
    match [_number(part) for part in numbers.split("-")]:
        case [int(replica)]:
            place = _Place("leader", 0, replica)
        case [int(replica), int(index)] if index > 0:
            place = _Place("worker", index - 1, replica)
        case _:
            place = _Place(None, None)
    return _rank(pod, owners[1:], count, sets, place, _integer(owner["spec"], "replicas", 1))


def volcano_job_rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a Volcano Job."""
    if not (owners and VOLCANO_JOB.describes(owners[0])):
        return None
    tasks = owners[0]["spec"]["tasks"]
    sets = [
        PodSet(one.get("name") or "default", int(one.get("replicas", 0)), one.get("template") or {})
        for one in tasks
    ]
    labels = labels_of(pod)
    place = _Place(labels.get(TASK), _number(labels.get(TASK_INDEX)))
    return _rank(pod, owners, count, sets, place)


_KINDS = (
    JOB_SET,
    TRAIN_JOB,
    PYTORCH_JOB,
    MPI_JOB,
    RAY_CLUSTER,
    RAY_JOB,
    LEADER_WORKER_SET,
    VOLCANO_JOB,
)
"""The kinds of this module, and those above them."""


def check_is_pod(pod: Manifest, owners: Owners) -> None:
    """Raise RefusedError for a pod template of these kinds: only its pods have numbers."""
    kind = next((one for one in _KINDS if owners and one.describes(owners[0])), None)
    if kind is not None and controller(pod) is None:
        raise RefusedError(
            f"the trainer index of a {kind.kind}'s pod is known only in the cluster: use the "
            "webhook"
        )


def owner_of(manifest: Manifest) -> Mapping[str, Any] | None:
    """Return the reference to what controls an object, or None if nothing does.

    A StatefulSet with the workers of a LeaderWorkerSet belongs to its leader pod. The result is the
    LeaderWorkerSet, without uid.
    """
    above = controller(manifest)
    name = labels_of(manifest).get(LWS_NAME)
    if above and name and (above.get("apiVersion"), above["kind"]) == ("v1", "Pod"):
        kind = LEADER_WORKER_SET
        return {"apiVersion": kind.api_version, "kind": kind.kind, "name": name}
    return above
