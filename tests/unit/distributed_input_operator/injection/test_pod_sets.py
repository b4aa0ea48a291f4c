"""Ranks of pods whose owners have several pod templates."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import names
from distributed_input_operator.injection.owners import JOB_SET
from distributed_input_operator.injection.pod_sets import LEADER_WORKER_SET, owner_of
from distributed_input_operator.injection.rank import OWNERS, RANKS, trainer_rank
from testing.operator.documentation import documented_manifest
from tests.unit.distributed_input_operator.injection.controllers import (
    TRAINERS,
    leader_worker_set,
    mpi_job,
    pods_template,
    pytorch_job,
    ray_cluster,
    ray_job,
    train_job,
    volcano_job,
)
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    jobset,
    jobset_job,
    jobset_pod,
    owner,
    pod,
    replicated,
    template,
)

SWEEP = ("Sweep", "s")
DOCUMENTED = {
    "PyTorchJob": lambda: pytorch_job(1, 3),
    "MPIJob": lambda: mpi_job(4)[1:],
    "RayJob": lambda: ray_job(4),
    "LeaderWorkerSet": lambda: leader_worker_set(2, 3),
    "Job": lambda: volcano_job(("trainer", 4, "train")),
}
"""The trainers of the examples in docs/controllers.md."""
COUNT = names.CONSUMERS_ANNOTATION


def annotated(made: Any, count: int) -> Any:
    """Return a copy of a pod with the annotation that has the number of trainers."""
    made = copy.deepcopy(made)
    made["metadata"]["annotations"][COUNT] = str(count)
    return made


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_trainers_of_each_kind_are_numbered_in_the_order_of_their_ranks(kind):
    trainers = TRAINERS[kind]()
    found = [rank_of(made, *owners) for made, owners in trainers]
    assert found == [(index, len(trainers)) for index in range(len(trainers))]


def test_each_kind_has_trainers_in_these_tests():
    found = [owners for build in TRAINERS.values() for _, owners in build()]
    of = [one for owners in found for one in owners]
    of += [jobset(replicated("a", 1, 1)), owner("StatefulSet", "fit", {"replicas": 1})]
    assert [kind for kind in OWNERS if not any(kind.describes(one) for one in of)] == []


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_the_documented_object_has_the_trainers_that_its_page_describes(kind):
    spec = documented_manifest(kind, "controllers.md")["spec"]
    spec = spec.get("rayClusterSpec", spec)
    trainers = DOCUMENTED[kind]()
    for index, (made, owners) in enumerate(trainers):
        of = next(one for one in owners if one["kind"] in (kind, "RayCluster"))
        of["spec"] = spec
        if kind == "RayJob":
            made["metadata"]["labels"]["ray.io/group"] = spec["workerGroupSpecs"][0]["groupName"]
        assert rank_of(made, *owners) == (index, len(trainers))


def test_the_documented_train_job_labels_the_pods_of_its_nodes():
    (patch,) = documented_manifest("TrainJob", "controllers.md")["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node["name"] == "node"
    patched = node["template"]["spec"]["template"]["metadata"]
    made, owners = train_job(4)[3]
    made["metadata"]["annotations"] |= patched["annotations"]
    owners[1]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"] = {"metadata": patched}
    assert rank_of(made, *owners) == (3, 4)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4),
    head=st.sampled_from([None, "train"]),
)
def test_the_pods_of_a_ray_cluster_are_numbered_without_gap_or_repetition(sizes, head):
    trainers = ray_cluster(*sizes, head=head)
    found = [rank_of(made, *owners) for made, owners in trainers]
    assert found == [(index, len(trainers)) for index in range(len(trainers))]


@pytest.mark.parametrize(
    "trainers",
    [
        pytorch_job(1, 2, above=SWEEP),
        ray_job(2, SWEEP),
        train_job(2, SWEEP),
        leader_worker_set(2, 2, above=SWEEP),
        volcano_job(("worker", 2, "train"), above=SWEEP),
    ],
    ids=["PyTorchJob", "RayJob", "TrainJob", "LeaderWorkerSet", "Volcano Job"],
)
def test_an_object_that_may_be_one_of_several_is_refused_without_the_count(trainers):
    made, owners = trainers[1]
    count = len(trainers)
    message = refusal_of(made, *owners)
    assert "belongs to Sweep s, which may create further trainers" in message
    assert f'{COUNT}: "{count}"' in message
    assert rank_of(annotated(made, count), *owners) == (1, count)
    assert "may create further trainers" in refusal_of(annotated(made, count + 1), *owners)


def test_a_job_of_another_kind_than_its_controller_creates_is_refused():
    # The submitter of a RayJob is a Job beside the RayCluster.
    submitter = owner("Job", "fit", {"completions": 1}, "RayJob", "fit", "ray.io/v1")
    of = owner("RayJob", "fit", {}, api_version="ray.io/v1")
    assert "may create further" in refusal_of(pod(owner=("Job", "fit")), submitter, of)


def test_an_mpi_launcher_reads_no_input_unless_it_runs_ranks():
    made, owners = mpi_job(2, inputs=("train", "train"))[0]
    assert trainer_rank(made, owners) is None
    # Its template has the label, and does not count.
    worker, of = mpi_job(2, inputs=("train", "train"))[2]
    assert rank_of(worker, *of) == (1, 2)
    made, owners = mpi_job(2, True, ("train", "train"))[0]
    assert rank_of(made, *owners) == (0, 3)


def test_omitted_fields_have_the_defaults_of_the_controllers():
    made, owners = pytorch_job(1, 1)[1]
    of = owners[0]["spec"]["pytorchReplicaSpecs"]
    owners[0]["spec"]["pytorchReplicaSpecs"] = {
        name.lower(): {"template": one["template"]} for name, one in of.items()
    }
    assert rank_of(made, *owners) == (1, 2)
    made, owners = mpi_job(0, inputs=("train", None))[0]
    owners[1]["spec"]["mpiReplicaSpecs"]["Worker"] = {"template": template()}
    assert rank_of(made, *owners) == (0, 1)
    made, owners = volcano_job(("default", 1, "train"))[0]
    del owners[0]["spec"]["tasks"][0]["name"]
    assert rank_of(made, *owners) == (0, 1)
    made, owners = leader_worker_set(1, 1)[0]
    owners[1]["spec"] = {"leaderWorkerTemplate": {"workerTemplate": template()}}
    assert rank_of(made, *owners) == (0, 1)


@pytest.mark.parametrize(
    ("trainers", "remedy"),
    [
        (
            pytorch_job(0, 4, elasticPolicy={"minReplicas": 2, "maxReplicas": 4}),
            "2 to 4 pods of worker",
        ),
        (ray_cluster((2, 2), enableInTreeAutoscaling=True), "0 to 20 pods of group0"),
    ],
    ids=["PyTorchJob", "RayCluster"],
)
def test_pods_whose_number_may_change_are_refused_without_the_count(trainers, remedy):
    made, owners = trainers[3]
    message = refusal_of(made, *owners)
    assert remedy in message
    assert "set minReplicas and maxReplicas to the same number" in message
    assert rank_of(annotated(made, 4), *owners) == (3, 4)


def test_autoscaling_of_pods_with_other_inputs_does_not_matter():
    for other in ("eval", ""):
        made, owners = ray_cluster((2, 1), head="train", enableInTreeAutoscaling=True)[0]
        owners[0]["spec"]["workerGroupSpecs"][0]["template"] = pods_template(other)
        assert rank_of(made, *owners) == (0, 1)
    limits = {"minReplicas": 1, "maxReplicas": 4}
    made, owners = pytorch_job(1, 2, ("train", None), elasticPolicy=limits)[0]
    assert rank_of(made, *owners) == (0, 1)


def test_the_replicas_of_a_ray_group_are_within_its_limits():
    made, owners = ray_cluster((9, 1), limits={"minReplicas": 0, "maxReplicas": 2})[1]
    assert rank_of(made, *owners) == (1, 2)
    made, owners = ray_cluster((1, 1), limits={"minReplicas": 2, "maxReplicas": 4})[0]
    assert rank_of(made, *owners) == (0, 2)


def test_ray_pods_that_nothing_numbers_are_refused_with_a_remedy_for_the_template():
    made, owners = ray_cluster((2, 1), indexed=False)[0]
    message = refusal_of(made, *owners)
    assert "RayCluster ray: nothing numbers the 2 pods of group0: use KubeRay 1.6" in message
    assert "worker groups of one pod" in message
    made, owners = ray_cluster((2, 2))[0]
    del made["metadata"]["labels"]["ray.io/replica-host-index"]
    assert "nothing numbers the 4 pods" in refusal_of(made, *owners)


@pytest.mark.parametrize("text", ["", "x", "-1", "²", "٣", "9" * 5000])
def test_what_is_no_number_gives_no_index(text):
    made, owners = volcano_job(("worker", 2, "train"))[0]
    made["metadata"]["labels"]["volcano.sh/task-index"] = text
    assert "nothing numbers the 2 pods of worker" in refusal_of(made, *owners)


def test_volcano_pods_of_an_old_release_are_refused():
    made, owners = volcano_job(("worker", 2, "train"))[0]
    del made["metadata"]["labels"]["volcano.sh/task-index"]
    assert "use Volcano 1.9 or later" in refusal_of(made, *owners)


def test_a_pod_of_an_object_that_was_scaled_is_refused_until_the_new_number_is_read():
    made, owners = pytorch_job(1, 2)[2]
    owners[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
    message = refusal_of(made, *owners)
    assert "PyTorchJob fit has 1 pods of worker, but this one has index 1: retry" in message
    # Another number of trainers does not make the index right.
    assert "retry" in refusal_of(annotated(made, 9), *owners)


def test_a_leader_worker_set_with_more_replicas_during_an_update_is_refused():
    made, owners = leader_worker_set(2, 2)[3]
    owners[1]["spec"]["replicas"] = 1
    assert "maxSurge: 0" in refusal_of(made, *owners)


def test_a_name_that_no_leader_worker_set_gives_has_no_rank():
    for name in ("fit-0-0", "fit-0-1-2", "fit-x", "other-0"):
        made, owners = leader_worker_set(1, 2)[0]
        made["metadata"]["name"] = name
        assert "belongs to no pod template" in refusal_of(made, *owners)


def test_the_workers_of_a_leader_worker_set_belong_to_it():
    leader, worker = leader_worker_set(1, 2)
    assert owner_of(leader[1][0]) == leader[1][0]["metadata"]["ownerReferences"][0]
    found = owner_of(worker[1][0])
    assert found is not None
    assert LEADER_WORKER_SET.describes(found)
    assert (found["name"], found.get("uid")) == ("fit", None)
    other = copy.deepcopy(worker[1][0])
    del other["metadata"]["labels"]
    assert owner_of(other) == other["metadata"]["ownerReferences"][0]


def test_templates_that_share_only_some_inputs_are_refused():
    made, owners = pytorch_job(1, 2, ("train,eval", "train"))[1]
    message = refusal_of(made, *owners)
    assert "the pod template of master shares only train with other pod templates" in message


def test_a_label_that_is_only_in_the_pod_is_refused():
    made, owners = pytorch_job(1, 2)[1]
    del owners[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]
    assert "set the label and annotations in the pod templates of the PyTorchJob" in refusal_of(
        made, *owners
    )


@pytest.mark.parametrize("kind", [one for one in OWNERS if one.kind not in ("Job", "StatefulSet")])
def test_a_template_is_refused_because_only_pods_have_numbers(kind):
    of = owner(kind.kind, "fit", {}, api_version=kind.api_version)
    message = refusal_of(template(), of)
    assert f"the trainer index of a {kind.kind}'s pod is known only in the cluster" in message
    assert "use the webhook" in message


def test_annotations_take_precedence_over_each_kind():
    made, owners = ray_cluster((2, 1), indexed=False)[0]
    made["metadata"]["annotations"] |= {COUNT: "2", names.CONSUMER_INDEX_ANNOTATION: "1"}
    assert rank_of(made, *owners) == (1, 2)
    assert JOB_SET in RANKS


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4),
    others=st.booleans(),
)
def test_the_pods_of_a_jobset_are_numbered_without_gap_or_repetition(sizes, others):
    parts = [replicated(f"part{i}", *size) for i, size in enumerate(sizes)]
    if others:  # these do not count: one requests no input, one requests another input
        parts = [replicated("ps", 2, 3, None), replicated("eval", 1, 2, "eval"), *parts]
    whole = jobset(*parts)
    found = [
        rank_of(jobset_pod(f"part{i}", j, k), jobset_job(completions), whole)
        for i, (replicas, completions) in enumerate(sizes)
        for j in range(replicas)
        for k in range(completions)
    ]
    assert found == [(index, len(found)) for index in range(len(found))]


def test_replicated_jobs_that_share_only_some_inputs_are_refused():
    whole = jobset(replicated("a", 1, 2, "train,eval"), replicated("b", 1, 2, "train"))
    message = refusal_of(jobset_pod("b", 0, 0), jobset_job(), whole)
    assert "the pod template of a shares only train" in message


def test_a_jobset_whose_templates_lack_the_label_is_refused():
    whole = jobset(replicated("a", 1, 2, None))
    assert "pod templates" in refusal_of(jobset_pod("a", 0, 0), jobset_job(), whole)


def test_a_job_of_a_jobset_without_index_is_refused():
    whole = jobset(replicated("a", 2, 1))
    message = refusal_of(jobset_pod("a", 0, 0), jobset_job(1, indexed=False), whole)
    assert "spec.completionMode: Indexed" in message


def test_a_template_of_a_jobset_is_refused():
    assert "use the webhook" in refusal_of(template(), jobset(replicated("a", 1, 2)))


def test_a_jobset_whose_controller_may_create_more_is_refused_without_the_count():
    parts, trainer = replicated("a", 2, 2), jobset_pod("a", 1, 0)
    message = refusal_of(trainer, jobset_job(), jobset(parts, above=("Sweep", "s")))
    assert "JobSet fits belongs to Sweep s, which may create further trainers" in message
    assert rank_of(trainer, jobset_job(), jobset(parts, above=("TrainJob", "fit"))) == (2, 4)
    trainer["metadata"]["annotations"][names.CONSUMERS_ANNOTATION] = "4"
    assert rank_of(trainer, jobset_job(), jobset(parts, above=("Sweep", "s"))) == (2, 4)
