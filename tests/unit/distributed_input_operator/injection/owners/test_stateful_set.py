"""The rank of a trainer pod from its StatefulSet."""

from __future__ import annotations

from typing import Any

from distributed_input_operator.injection.owners.stateful_set import POD_INDEX
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import owner, pod


def stateful_set(*above: str, **spec: Any) -> Any:
    return owner("StatefulSet", "fit", spec, *above)


def test_a_stateful_set_has_index_and_count():
    index, count = rank_of(pod(), stateful_set(replicas=3))
    assert (index, count) == (f"metadata.labels['{POD_INDEX}']", 3)


def test_the_index_is_relative_to_the_first_ordinal():
    trainer = pod(labels={POD_INDEX: "7"})
    assert rank_of(trainer, stateful_set(replicas=3, ordinals={"start": 5})) == (2, 3)


def test_without_its_label_the_ordinal_is_in_the_pods_name():
    trainer = pod()
    trainer["metadata"]["name"] = "fit-6"
    assert rank_of(trainer, stateful_set(replicas=3, ordinals={"start": 5})) == (1, 3)


def test_a_template_without_ordinal_is_refused_if_ordinals_do_not_start_at_0():
    message = refusal_of(pod(), stateful_set(replicas=3, ordinals={"start": 5}))
    assert "use the webhook, or start at 0" in message


def test_a_stateful_set_with_a_controller_is_refused_also_with_a_tpu_slice():
    found = stateful_set("LeaderWorkerSet", "fits", replicas=2)
    trainer = pod(env={"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "a,b"})
    for one in (pod(), trainer):
        message = refusal_of(one, found)
        assert "its owner StatefulSet fit of LeaderWorkerSet fits: set the annotations" in message
