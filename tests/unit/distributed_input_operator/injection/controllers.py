"""Objects of controllers of trainers, and the pods that these controllers create for them.

Labels, names and owners are as in the sources that each function names. Each function returns the
pods in the order of their ranks, each with its owners: what controls it, and so on upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.distributed_input_operator.injection.trainer_pods import (
    job,
    jobset,
    jobset_pod,
    owner,
    pod,
    replicated,
    template,
)

Owned = tuple[Any, tuple[Any, ...]]
"""A pod and its owners."""


def pods_template(inputs: str | None = "train") -> dict[str, Any]:
    """Return a pod template. Without inputs, its pods are no trainers."""
    return template(inputs) if inputs else {"spec": {"containers": [{"name": "other"}]}}


def created(name: str, inputs: str | None, of: Any, **labels: str) -> Any:
    """Return a pod of one of the templates, as its controller creates it."""
    meta = of["metadata"]
    made = pod(inputs or "train", owner=(of["kind"], meta["name"], of["apiVersion"]))
    made["metadata"]["name"] = name
    made["metadata"]["labels"] |= labels
    return made


def train_job(nodes: int, above: tuple[str, ...] = ()) -> list[Owned]:
    """Return the pods of a TrainJob.

    Kubeflow Trainer 2.3.0, pkg/runtime/framework/plugins/jobset/jobset.go: a JobSet with a
    replicated job `node`, whose completions and parallelism are the number of nodes. The
    initializers of the dataset and of the model are further replicated jobs.
    """
    version = "trainer.kubeflow.org/v1alpha1"
    train = owner("TrainJob", "fit", {}, *above, api_version=version)
    parts = [replicated("dataset-initializer", 1, 1, None), replicated("node", 1, nodes)]
    whole = jobset(*parts, above=("TrainJob", "fit"))
    below = job(nodes, above=("JobSet", "fits"))
    return [(jobset_pod("node", 0, i), (below, whole, train)) for i in range(nodes)]


def pytorch_job(
    masters: int = 1,
    workers: int = 2,
    inputs: Sequence[str | None] = ("train", "train"),
    above: tuple[str, ...] = (),
    **spec: Any,
) -> list[Owned]:
    """Return the pods of a PyTorchJob.

    Training operator 1.9.0, pkg/controller.v1/common/pod.go (createNewPod) and job_controller.go
    (GenLabels): the type is in lower case, each type counts from 0.
    """
    of: dict[str, Any] = {
        name: {"replicas": count, "template": pods_template(one)}
        for name, count, one in zip(("Master", "Worker"), (masters, workers), inputs, strict=True)
        if count
    }
    version = "kubeflow.org/v1"
    spec |= {"pytorchReplicaSpecs": of}
    whole = owner("PyTorchJob", "fit", spec, *above, api_version=version)
    return [
        (
            created(
                f"fit-{kind.lower()}-{i}",
                one,
                whole,
                **{
                    "training.kubeflow.org/operator-name": "pytorchjob-controller",
                    "training.kubeflow.org/job-name": "fit",
                    "training.kubeflow.org/replica-type": kind.lower(),
                    "training.kubeflow.org/replica-index": str(i),
                },
            ),
            (whole,),
        )
        for kind, one in zip(("Master", "Worker"), inputs, strict=True)
        for i in range(of[kind]["replicas"] if one and kind in of else 0)
    ]


def mpi_job(
    workers: int = 2,
    launcher_as_worker: bool = False,
    inputs: Sequence[str | None] = (None, "train"),
    padded: bool = True,
) -> list[Owned]:
    """Return the pods of an MPIJob: the launcher first, then the workers.

    MPI operator 0.8.0, pkg/controller/mpi_job_controller.go (newWorker, newLauncherJob,
    workerReplicaIndexLabel, defaultLabels): the launcher has a Job. With runLauncherAsWorker, the
    workers' labels count from 1, and before 0.7 from 0 (`padded` is false).
    """
    kinds = ("Launcher", "Worker")
    of = {
        kind: {"replicas": count, "template": pods_template(one)}
        for kind, count, one in zip(kinds, (1, workers), inputs, strict=True)
        if count
    }
    spec = {"mpiReplicaSpecs": of, "runLauncherAsWorker": launcher_as_worker, "slotsPerWorker": 1}
    version = "kubeflow.org/v2beta1"
    whole = owner("MPIJob", "fit", spec, api_version=version)
    launcher_job = owner("Job", "fit-launcher", {"template": {}}, "MPIJob", "fit", version)
    common = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "fit",
    }
    launcher = created("fit-launcher-x7k2p", inputs[0], launcher_job, **common)
    launcher["metadata"]["labels"]["training.kubeflow.org/job-role"] = "launcher"
    if launcher_as_worker and padded:
        launcher["metadata"]["labels"]["training.kubeflow.org/replica-index"] = "0"
    found: list[Owned] = [(launcher, (launcher_job, whole))]
    for i in range(workers):
        index = i + (launcher_as_worker and padded)
        made = created(f"fit-worker-{i}", inputs[1], whole, **common)
        made["metadata"]["labels"] |= {
            "training.kubeflow.org/job-role": "worker",
            "training.kubeflow.org/replica-index": str(index),
        }
        found.append((made, (whole,)))
    return found


def ray_cluster(
    *groups: tuple[int, int],
    head: str | None = None,
    indexed: bool = True,
    above: tuple[str, ...] = (),
    more: Sequence[Any] = (),
    limits: dict[str, int] | None = None,
    **spec: Any,
) -> list[Owned]:
    """Return the trainers of a RayCluster. Each group has replicas, and hosts of each replica.

    KubeRay 1.7.0, ray-operator/controllers/ray/common/pod.go (labelPod, DefaultWorkerPodTemplate):
    names are random. The labels of replica and host are from the feature RayMultiHostIndexing,
    which is on by default since 1.6 (`indexed`).
    """
    workers = [
        {
            "groupName": f"group{i}",
            "replicas": replicas,
            "minReplicas": 0,
            "maxReplicas": 10,
            "numOfHosts": hosts,
            "template": pods_template(),
        }
        | (limits or {})
        for i, (replicas, hosts) in enumerate(groups)
    ]
    spec |= {"headGroupSpec": {"template": pods_template(head)}, "workerGroupSpecs": workers}
    whole = owner("RayCluster", "ray", spec, *above, api_version="ray.io/v1")
    owners = (whole, *more)
    common = {"ray.io/cluster": "ray", "ray.io/is-ray-node": "yes"}
    found = []
    if head:
        labels = {"ray.io/node-type": "head", "ray.io/group": "headgroup"}
        found.append((created("ray-head", head, whole, **common, **labels), owners))
    for i, (replicas, hosts) in enumerate(groups):
        for replica in range(replicas):
            for host in range(hosts):
                labels = {"ray.io/node-type": "worker", "ray.io/group": f"group{i}"}
                if indexed:
                    labels["ray.io/worker-group-replica-index"] = str(replica)
                if indexed and hosts > 1:
                    labels["ray.io/worker-group-replica-name"] = f"group{i}-{replica}"
                    labels["ray.io/replica-host-index"] = str(host)
                made = created(f"ray-group{i}-worker-x{replica}{host}", "train", whole, **common)
                made["metadata"]["labels"] |= labels
                found.append((made, owners))
    return found


def ray_job(replicas: int, above: tuple[str, ...] = ()) -> list[Owned]:
    """Return the trainers of a RayJob.

    KubeRay 1.7.0, ray-operator/controllers/ray/rayjob_controller.go (constructRayClusterForRayJob).
    """
    of = owner("RayJob", "fit", {}, *above, api_version="ray.io/v1")
    return ray_cluster((replicas, 1), above=("RayJob", "fit", "ray.io/v1"), more=(of,))


def leader_worker_set(
    replicas: int = 2,
    size: int = 3,
    inputs: Sequence[str | None] = ("train", "train"),
    above: tuple[str, ...] = (),
) -> list[Owned]:
    """Return the trainers of a LeaderWorkerSet, as StatefulSet's controller creates them.

    LWS 0.10.0, pkg/controllers/leaderworkerset_controller.go
    (constructLeaderStatefulSetApplyConfiguration) and pod_controller.go
    (constructWorkerStatefulSetApplyConfiguration): the workers' StatefulSet has the name of the
    leader pod, which controls it. LWS's webhook adds group-index to leaders and worker-index to
    workers, perhaps later.
    """
    parts: dict[str, Any] = {"size": size, "workerTemplate": pods_template(inputs[1])}
    if inputs[0] != inputs[1]:
        parts["leaderTemplate"] = pods_template(inputs[0])
    version = "leaderworkerset.x-k8s.io/v1"
    spec = {"replicas": replicas, "leaderWorkerTemplate": parts}
    whole = owner("LeaderWorkerSet", "fit", spec, *above, api_version=version)
    leaders = owner("StatefulSet", "fit", {}, "LeaderWorkerSet", "fit", version)
    found = []
    own = "leaderworkerset.sigs.k8s.io"
    for replica in range(replicas):
        if inputs[0]:
            labels = {f"{own}/name": "fit", f"{own}/worker-index": "0"}
            found.append(
                (created(f"fit-{replica}", inputs[0], leaders, **labels), (leaders, whole))
            )
        labels = {f"{own}/name": "fit", f"{own}/group-index": str(replica)}
        workers = owner("StatefulSet", f"fit-{replica}", {}, "Pod", f"fit-{replica}", "v1")
        workers["metadata"]["labels"] = labels
        found += [
            (created(f"fit-{replica}-{i}", inputs[1], workers, **labels), (workers, whole))
            for i in range(1, size if inputs[1] else 1)
        ]
    return found


def volcano_job(*tasks: tuple[str, int, str | None], above: tuple[str, ...] = ()) -> list[Owned]:
    """Return the trainers of a Volcano Job. Each task has a name, replicas and inputs.

    Volcano 1.15.1, pkg/controllers/job/job_controller_util.go (createJobPod). The label task-index
    exists since 1.9.
    """
    spec = {
        "minAvailable": 1,
        "tasks": [
            {"name": name, "replicas": replicas, "template": pods_template(inputs)}
            for name, replicas, inputs in tasks
        ],
    }
    whole = owner("Job", "fit", spec, *above, api_version="batch.volcano.sh/v1alpha1")
    return [
        (
            created(
                f"fit-{name}-{i}",
                inputs,
                whole,
                **{
                    "volcano.sh/job-name": "fit",
                    "volcano.sh/task-spec": name,
                    "volcano.sh/task-index": str(i),
                },
            ),
            (whole,),
        )
        for name, replicas, inputs in tasks
        for i in range(replicas if inputs else 0)
    ]


TRAINERS: dict[str, Callable[[], list[Owned]]] = {
    "TrainJob": lambda: train_job(3),
    "PyTorchJob": pytorch_job,
    "PyTorchJob without master": lambda: pytorch_job(0, 3),
    "PyTorchJob whose workers are no trainers": lambda: pytorch_job(1, 2, ("train", None)),
    "PyTorchJob with equal limits": lambda: pytorch_job(
        0, 2, elasticPolicy={"minReplicas": 2, "maxReplicas": 2}
    ),
    "MPIJob": lambda: mpi_job(3)[1:],
    "MPIJob whose launcher is a worker": lambda: mpi_job(2, True, ("train", "train")),
    "MPIJob of an older release": lambda: mpi_job(2, True, ("train", "train"), padded=False),
    "MPIJob with a launcher only": lambda: mpi_job(0, inputs=("train", None)),
    "RayCluster": lambda: ray_cluster((3, 1)),
    "RayCluster with a head that trains": lambda: ray_cluster((2, 1), (1, 1), head="train"),
    "RayCluster of several hosts": lambda: ray_cluster((2, 3), (1, 2)),
    "RayCluster of groups of one pod": lambda: ray_cluster((1, 1), (1, 1), indexed=False),
    "RayCluster with equal limits": lambda: ray_cluster(
        (2, 1), limits={"minReplicas": 2, "maxReplicas": 2}, enableInTreeAutoscaling=True
    ),
    "RayJob": lambda: ray_job(2),
    "RayJob of a RayCronJob": lambda: ray_job(2, ("RayCronJob", "nightly", "ray.io/v1")),
    "LeaderWorkerSet": leader_worker_set,
    "LeaderWorkerSet with leaders only": lambda: leader_worker_set(3, 1),
    "LeaderWorkerSet with workers only": lambda: leader_worker_set(2, 3, (None, "train")),
    "Volcano Job": lambda: volcano_job(("master", 1, "train"), ("worker", 3, "train")),
    "Volcano Job with a scheduler": lambda: volcano_job(("ps", 2, None), ("worker", 2, "train")),
}
"""Trainers of each kind, in the order of their ranks."""
