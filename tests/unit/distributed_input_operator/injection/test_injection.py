"""The pod with its sidecar."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import environment, files, names
from distributed_input_operator.injection.injection import asks, injected, patch, warnings
from distributed_input_operator.injection.trainers import RefusedError
from tests.unit.distributed_input_operator.injection.trainerpods import (
    IMAGE,
    finder,
    job,
    pod,
    resource,
    tf_config,
)

TRAIN = resource("train", "sidecar: {buffer: 64Mi}\ndataset: {entryPoint: 'rows:numbered'}")
EVAL = resource("eval", "sidecar: {buffer: 16Mi}\ndispatcher: {port: 7777}")
OPEN = resource("open", "networkPolicy: false")
FIND = finder(TRAIN, EVAL)


def inject(of: Any, *inputs: Any, **owners: Any) -> dict[str, Any]:
    return injected(of, owners, finder(*inputs) if inputs else FIND, IMAGE)


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


def test_pods_ask_by_their_label():
    assert asks(pod())
    assert not asks(pod(labels={names.INJECT_LABEL: "false"}))
    assert not asks({"metadata": {}, "spec": {}})


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


def test_every_container_of_the_trainer_finds_the_sidecar():
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
    made = inject(pod(owner=("Job", "fit")), Job=job(4))
    index, count = sidecar(made)["env"]
    assert flags(made, "--consumer-index") == [f"$({index['name']})"]
    assert flags(made, "--consumer-count") == [f"$({count['name']})"]
    assert "job-completion-index" in index["valueFrom"]["fieldRef"]["fieldPath"]
    assert count["value"] == "4"


def test_tokens_are_for_the_sidecar_alone():
    made = inject(pod("train,eval"))
    (volume,) = [v for v in made["spec"]["volumes"] if "projected" in v]
    secrets = [s["secret"] for s in volume["projected"]["sources"] if "secret" in s]
    assert [one["items"][0]["path"] for one in secrets] == ["tokens/train", "tokens/eval"]
    for container in made["spec"]["containers"]:
        assert volume["name"] not in [mount["name"] for mount in container["volumeMounts"]]
    assert volume["name"] in [mount["name"] for mount in sidecar(made)["volumeMounts"]]


def run_volume(of: dict[str, Any]) -> dict[str, Any]:
    return next(dict(v["emptyDir"]) for v in of["spec"]["volumes"] if "emptyDir" in v)


def test_the_shared_memory_holds_each_ring_twice():
    assert run_volume(inject(pod("train"))) == {"medium": "Memory", "sizeLimit": "128Mi"}


def test_the_shared_memory_holds_a_dataset_that_the_trainer_brings():
    assert run_volume(inject(pod("eval")))["sizeLimit"] == "288Mi"
    assert run_volume(inject(pod("train,eval")))["sizeLimit"] == "416Mi"


def test_the_sidecars_memory_counts_the_rings():
    assert sidecar(inject(pod("train,eval")))["resources"] == {
        "requests": {"cpu": "500m", "memory": "336Mi"},
        "limits": {"memory": "1104Mi"},
    }


def test_resources_of_several_inputs_add_up():
    first = resource("train", "sidecar: {resources: {limits: {cpu: 1500m, memory: 1G}}}")
    second = resource("eval", "sidecar: {resources: {requests: {cpu: 1, memory: 2Gi}}}")
    assert sidecar(inject(pod("train,eval"), first, second))["resources"] == {
        "requests": {"cpu": "2500m", "memory": str(10**9 + 2 * 2**30)},
        "limits": {"memory": str(10**9 + 2 * 2**30)},
    }
    assert sidecar(inject(pod("train"), first))["resources"]["limits"]["cpu"] == "1500m"


def test_inputs_that_want_different_images_are_refused():
    first = resource("train", "sidecar: {image: 'a:1'}")
    second = resource("eval", "sidecar: {image: 'b:1'}")
    assert "a:1 (train) and b:1 (eval)" in refusal(pod("train,eval"), first, second)
    assert sidecar(inject(pod("train,eval"), first, EVAL))["image"] == "a:1"
    assert sidecar(inject(pod()))["image"] == IMAGE


def test_the_sidecar_has_the_fewest_rights_and_never_roots():
    security = sidecar(inject(pod()))["securityContext"]
    assert security["runAsNonRoot"]
    assert security["readOnlyRootFilesystem"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security["allowPrivilegeEscalation"]
    assert "runAsUser" not in security  # the image's, or the pod's
    root = inject(pod(securityContext={"runAsUser": 0}))
    assert sidecar(root)["securityContext"]["runAsUser"] == names.USER_ID


def test_the_sidecars_port_is_one_that_the_trainers_leave_free():
    trainer = {"name": "trainer", "ports": [{"containerPort": 9090}, {"containerPort": 9091}]}
    made = inject(pod(containers=[trainer]))
    assert sidecar(made)["ports"][0]["containerPort"] == 9092
    assert flags(made, "--metrics-listen") == [":9092"]
    assert sidecar(made)["livenessProbe"]["httpGet"]["port"] == 9092


def test_evaluator_and_ps_get_a_note_alone():
    before = pod(env=tf_config("ps", 0, worker=2, ps=1))
    made = inject(before)
    assert made["spec"] == before["spec"]
    assert "reads no input" in made["metadata"]["annotations"][names.INJECTED_ANNOTATION]


def test_the_note_says_what_was_done():
    note = json.loads(inject(pod())["metadata"]["annotations"][names.INJECTED_ANNOTATION])
    assert note == {"inputs": ["train"], "consumers": 1, "knownBy": "being alone"}


def test_a_pod_that_names_no_input_is_refused():
    assert names.INPUTS_ANNOTATION in refusal(pod(" , "))
    nothing = pod()
    del nothing["metadata"]["annotations"]
    assert names.INPUTS_ANNOTATION in refusal(nothing)


def test_a_pod_that_names_a_missing_input_is_refused():
    assert "'trian'" in refusal(pod("trian"))


def test_a_pod_on_the_hosts_network_is_warned_of_its_dns():
    host = pod("open", hostNetwork=True)
    assert "ClusterFirstWithHostNet" in warnings(host, finder(OPEN))[0]
    host = pod("open", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    assert warnings(host, finder(OPEN)) == []
    assert warnings(pod(), FIND) == []


def test_a_pod_on_the_hosts_network_is_warned_of_inputs_that_keep_it_out():
    host = pod("train,open", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    (said,) = warnings(host, finder(TRAIN, OPEN))
    assert said.endswith("set spec.networkPolicy: false of DistributedInput train")


def defaulted(of: dict[str, Any]) -> dict[str, Any]:
    """As the API server hands a pod out again: with defaults and others' additions."""
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
    owners = {"Job": job(2)} if owned else {}
    once = inject(before, **owners)
    assert patch(once, inject(once, **owners)) == []
    again = defaulted(once)
    assert patch(again, inject(again, **owners)) == []


@given(before=PODS)
def test_the_patch_makes_the_injected_pod_and_the_pod_itself_stays(before):
    kept = copy.deepcopy(before)
    after = inject(before)
    assert before == kept
    for change in patch(before, after):
        assert change["op"] == "add"
        _, part, key = change["path"].split("/")
        before[part][key] = change["value"]
    assert before == after


@given(before=PODS)
def test_what_the_pod_had_it_keeps(before):
    after = inject(before)["spec"]
    for part in ("volumes", "initContainers"):
        assert [one for one in before["spec"][part] if one not in after[part]] == []
    env = {one["name"]: one["value"] for one in before["spec"]["containers"][0].get("env", [])}
    env.pop(environment.DIR_ENV, None)  # ours
    made = {one["name"]: one.get("value") for one in after["containers"][0]["env"]}
    assert env.items() <= made.items()


def test_a_container_that_came_later_is_served_too():
    once = inject(pod())
    once["spec"]["containers"].append({"name": "late"})
    again = inject(once)
    assert again["spec"]["containers"][1]["volumeMounts"][0]["mountPath"] == files.RUN_DIR
    assert len(again["spec"]["initContainers"]) == 1
