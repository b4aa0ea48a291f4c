"""Injection of the sidecar into a pod."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import environment, files, names
from distributed_input_operator.injection import pod as injection
from distributed_input_operator.injection.pod import (
    host_network_warnings,
    json_patch,
    requests_sidecar,
)
from distributed_input_operator.injection.trainer_pod import RefusedError
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    SETTINGS,
    finder,
    job,
    pod,
    resource,
    tf_config,
)

TRAIN = resource(
    "train",
    "sidecar: {buffer: 64Mi}\ndataset: {type: EntryPoint, entryPoint: {function: 'rows:numbered'}}",
)
EVAL = resource("eval", "sidecar: {buffer: 16Mi}\ndispatcher: {port: 7777}")
OPEN = resource("open", "networkPolicy: Open")
FIND = finder(TRAIN, EVAL)


def inject(of: Any, *inputs: Any, owners: Sequence[Any] = ()) -> dict[str, Any]:
    return injection.inject(of, owners, finder(*inputs) if inputs else FIND, SETTINGS)


def refusal(of: Any, *inputs: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        inject(of, *inputs)
    return str(caught.value)


def sidecar(of: dict[str, Any]) -> dict[str, Any]:
    (found,) = [c for c in of["spec"]["initContainers"] if c["name"] == names.SIDECAR_CONTAINER]
    return dict(found)


def flags(of: dict[str, Any], flag: str) -> list[str]:
    args = sidecar(of)["args"]
    return [args[i + 1] for i, arg in enumerate(args) if arg == flag]


def test_a_label_requests_the_sidecar():
    assert requests_sidecar(pod())
    assert not requests_sidecar(pod(labels={names.INJECT_LABEL: "false"}))
    assert not requests_sidecar({"metadata": {}, "spec": {}})


def test_trainers_that_cannot_share_the_partitions_are_refused():
    three = {names.CONSUMERS_ANNOTATION: "3", names.CONSUMER_INDEX_ANNOTATION: "0"}
    text = refusal(pod(annotations=three), resource("train", "partitions: 8"))
    assert text == (
        "input train: spec.partitions: 3 trainers cannot divide 8 partitions. Use 1, 2, 4 or 8 "
        "trainers, or set spec.partitions to a multiple of 3"
    )
    inject(pod(annotations=three), resource("train", "partitions: 9"))
    ranks = {**three, names.RANKS_ANNOTATION: "2"}
    assert "6 trainers cannot divide 9" in refusal(
        pod(annotations=ranks), resource("train", "partitions: 9")
    )
    # A trainer may pass another batch size, which changes the default of spec.partitions.
    inject(pod(annotations=three), resource("train", "batching: {globalBatchSize: 8}"))


def test_the_sidecar_starts_before_the_trainer_and_ends_after_it():
    made = inject(pod(initContainers=[{"name": "prepare"}]))
    assert [c["name"] for c in made["spec"]["initContainers"]] == [
        "prepare",
        names.SIDECAR_CONTAINER,
    ]
    assert sidecar(made)["restartPolicy"] == "Always"
    assert sidecar(made)["startupProbe"]["httpGet"] == {"path": "/healthz", "port": 9090}


def test_one_sidecar_serves_several_inputs():
    made = inject(pod("train, eval,train"))
    assert flags(made, "--config") == [f"{files.CONFIG_DIR}/{n}.json" for n in ("train", "eval")]
    assert flags(made, "--dispatcher") == [
        "train=train-dispatcher:7070",
        "eval=eval-dispatcher:7070",
    ]
    assert made["metadata"]["labels"][names.reads_label("train")] == "true"
    assert made["metadata"]["labels"][names.reads_label("eval")] == "true"


def test_every_container_of_the_trainer_can_connect_to_the_sidecar():
    trainers = [{"name": "trainer"}, {"name": "logger", "env": [{"name": "A", "value": "b"}]}]
    made = inject(pod("train,eval", containers=trainers))
    for container in made["spec"]["containers"]:
        env = {one["name"]: one.get("value") for one in container["env"]}
        assert env[environment.DIR_ENV] == files.RUN_DIR
        assert env[environment.NAMES_ENV] == "train,eval"
        assert env[environment.CONSUMER_INDEX_ENV] == "0"
        assert env[environment.CONSUMER_COUNT_ENV] == "1"
        assert [m["mountPath"] for m in container["volumeMounts"]] == [files.RUN_DIR]
    assert made["spec"]["containers"][1]["env"][0] == {"name": "A", "value": "b"}


def test_index_and_count_reach_the_sidecar_through_its_environment():
    made = inject(pod(owner=("Job", "fit")), owners=[job(4)])
    index, count = sidecar(made)["env"]
    assert flags(made, "--consumer-index") == [f"$({index['name']})"]
    assert flags(made, "--consumer-count") == [f"$({count['name']})"]
    assert "job-completion-index" in index["valueFrom"]["fieldRef"]["fieldPath"]
    assert count["value"] == "4"


def test_only_the_sidecar_mounts_the_tokens():
    made = inject(pod("train,eval"))
    (volume,) = [v for v in made["spec"]["volumes"] if "projected" in v]
    secrets = [s["secret"] for s in volume["projected"]["sources"] if "secret" in s]
    assert [one["items"][0]["path"] for one in secrets] == ["tokens/train", "tokens/eval"]
    for container in made["spec"]["containers"]:
        assert volume["name"] not in [mount["name"] for mount in container["volumeMounts"]]
    assert volume["name"] in [mount["name"] for mount in sidecar(made)["volumeMounts"]]


def test_the_sidecar_of_a_pod_that_runs_as_root_does_not_run_as_root():
    root = inject(pod(securityContext={"runAsUser": 0}))
    assert sidecar(root)["securityContext"]["runAsUser"] == names.USER_ID


def test_the_sidecars_port_is_not_used_by_the_trainers():
    trainer = {"name": "trainer", "ports": [{"containerPort": 9090}, {"containerPort": 9091}]}
    made = inject(pod(containers=[trainer]))
    assert sidecar(made)["ports"][0]["containerPort"] == 9092
    assert flags(made, "--metrics-listen") == [":9092"]
    assert sidecar(made)["livenessProbe"]["httpGet"]["port"] == 9092


def test_evaluator_and_ps_get_only_an_annotation():
    before = pod(env=tf_config("ps", 0, worker=2, ps=1))
    made = inject(before)
    assert made["spec"] == before["spec"]
    assert "reads no input" in made["metadata"]["annotations"][names.INJECTED_ANNOTATION]


def test_the_annotation_describes_the_injection():
    note = json.loads(inject(pod())["metadata"]["annotations"][names.INJECTED_ANNOTATION])
    assert note == {"inputs": ["train"], "consumers": 1, "knownBy": "a pod without owner"}


def test_the_ranks_of_a_pod_share_a_sidecar_with_room_for_all():
    of = pod(annotations={names.RANKS_ANNOTATION: "4"})
    made = inject(of)
    assert flags(made, "--ranks-per-trainer") == ["4"]
    (memory,) = (v for v in made["spec"]["volumes"] if v["name"] == "distributed-input")
    assert memory["emptyDir"]["sizeLimit"] == "512Mi"
    assert sidecar(made)["resources"]["requests"]["cpu"] == "1"
    note = json.loads(made["metadata"]["annotations"][names.INJECTED_ANNOTATION])
    assert (note["consumers"], note["ranksPerTrainer"]) == (1, 4)
    assert inject(made) == made


def test_a_pod_that_shares_a_rank_with_others_tells_its_sidecar():
    annotations = {names.RANKS_ANNOTATION: "1/2", names.CONSUMERS_ANNOTATION: "4"}
    made = inject(pod(annotations={**annotations, names.CONSUMER_INDEX_ANNOTATION: "3"}))
    assert flags(made, "--ranks-per-trainer") == ["1/2"]
    note = json.loads(made["metadata"]["annotations"][names.INJECTED_ANNOTATION])
    assert (note["consumers"], note["ranksPerTrainer"]) == (4, "1/2")
    assert inject(made) == made


def test_a_pod_without_a_requested_input_is_refused():
    assert names.INPUTS_ANNOTATION in refusal(pod(" , "))
    nothing = pod()
    del nothing["metadata"]["annotations"]
    assert names.INPUTS_ANNOTATION in refusal(nothing)


def test_a_pod_with_a_missing_input_is_refused():
    assert "'trian'" in refusal(pod("trian"))


def test_a_pod_on_the_hosts_network_gets_a_warning_about_dns():
    host = pod("open", hostNetwork=True)
    assert "ClusterFirstWithHostNet" in host_network_warnings(host, finder(OPEN))[0]
    host = pod("open", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    assert host_network_warnings(host, finder(OPEN)) == []
    assert host_network_warnings(pod(), FIND) == []


def test_a_pod_on_the_hosts_network_gets_a_warning_about_network_policies():
    host = pod("train,open", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    (warning,) = host_network_warnings(host, finder(TRAIN, OPEN))
    assert warning.endswith("set spec.networkPolicy: Open in DistributedInput train")


def defaulted(of: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with the defaults of the API server and additions of others."""
    made = copy.deepcopy(of)
    token = {"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}
    for container in [*made["spec"]["initContainers"], *made["spec"]["containers"]]:
        container["terminationMessagePath"] = "/dev/termination-log"
        container.setdefault("volumeMounts", []).append(token)
        for field in [
            e["valueFrom"]["fieldRef"] for e in container.get("env", ()) if "valueFrom" in e
        ]:
            field["apiVersion"] = "v1"
    own = sidecar(made)
    own["startupProbe"]["httpGet"]["scheme"] = "HTTP"
    own["ports"][0]["protocol"] = "TCP"
    for volume in made["spec"]["volumes"]:
        volume.get("projected", {})["defaultMode"] = 420
    return made


PODS = st.builds(
    pod,
    st.sampled_from(["train", "eval", "train,eval"]),
    env=st.dictionaries(st.sampled_from(["A", environment.DIR_ENV]), st.text(max_size=3)),
    annotations=st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3)),
    volumes=st.lists(st.builds(lambda name: {"name": name}, st.sampled_from("xyz")), max_size=2),
    initContainers=st.lists(st.just({"name": "prepare"}), max_size=1),
    hostNetwork=st.booleans(),
)


@given(before=PODS, owned=st.booleans())
def test_injecting_again_changes_nothing(before, owned):
    owners = [job(2)] if owned else []
    once = inject(before, owners=owners)
    assert json_patch(once, inject(once, owners=owners)) == []
    again = defaulted(once)
    assert json_patch(again, inject(again, owners=owners)) == []


@given(before=PODS)
def test_the_patch_converts_the_pod_to_the_injected_one(before):
    kept = copy.deepcopy(before)
    after = inject(before)
    assert before == kept
    for change in json_patch(before, after):
        assert change["op"] == "add"
        _, part, key = change["path"].split("/")
        before[part][key] = change["value"]
    assert before == after


@given(before=PODS)
def test_existing_fields_of_the_pod_stay(before):
    after = inject(before)["spec"]
    for part in ("volumes", "initContainers"):
        assert [one for one in before["spec"][part] if one not in after[part]] == []
    env = {one["name"]: one["value"] for one in before["spec"]["containers"][0].get("env", [])}
    env.pop(environment.DIR_ENV, None)  # injection sets it
    made = {one["name"]: one.get("value") for one in after["containers"][0]["env"]}
    assert env.items() <= made.items()


def test_a_container_that_was_added_later_is_injected_too():
    once = inject(pod())
    once["spec"]["containers"].append({"name": "late"})
    again = inject(once)
    assert again["spec"]["containers"][1]["volumeMounts"][0]["mountPath"] == files.RUN_DIR
    assert len(again["spec"]["initContainers"]) == 1


def test_an_injected_trainer_gets_the_address_of_the_tf_data_service():
    service = resource("train", "tfDataService: {}")
    made = inject(pod(), service)
    env = {one["name"]: one.get("value") for one in made["spec"]["containers"][0]["env"]}
    assert env[environment.TF_DATA_SERVICE_ENV] == "grpc://train-dispatcher:7080"
