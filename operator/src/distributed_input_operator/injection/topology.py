"""Which trainer a pod is by its environment: TF_CONFIG, or the TPU slice. Pure."""

from __future__ import annotations

import json
from typing import Any

from distributed_input_operator.injection.trainers import (
    REMEDY,
    Consumer,
    Manifest,
    RefusedError,
    env,
    env_text,
    literal,
    number,
)

_CONSUMERS = ("chief", "master", "worker")
"""TF_CONFIG's tasks that read, in the order of their indices."""
_WITHOUT_INPUT = ("evaluator", "ps")


def without_input(pod: Manifest) -> str:
    """TF_CONFIG's task where it reads no share of an input; else empty. Raises RefusedError."""
    task = _tf_task(pod)
    return task["type"] if task and task["type"] in _WITHOUT_INPUT else ""


def by_tf_config(pod: Manifest) -> Consumer | None:
    """By TF_CONFIG; None where there is none that can be read here. Raises RefusedError."""
    task = _tf_task(pod)
    if task is None:
        return None
    lists = [task["cluster"].get(kind, []) for kind in _CONSUMERS]
    if task["type"] not in _CONSUMERS or type(task["index"]) is not int or task["index"] < 0:
        raise RefusedError(
            f"TF_CONFIG: its task has type {json.dumps(task['type'])} and index "
            f"{json.dumps(task['index'])}: it takes one of "
            f"{', '.join((*_CONSUMERS, *_WITHOUT_INPUT))}, and a number"
        )
    if not all(isinstance(one, list) for one in lists):
        return Consumer(literal(task["index"]), None, "a TF_CONFIG that does not list all workers")
    place = _CONSUMERS.index(task["type"])
    if task["index"] >= len(lists[place]):
        raise RefusedError(
            f"TF_CONFIG: its cluster lists {len(lists[place])} of type {task['type']}, and the "
            f"task has index {task['index']}"
        )
    before = sum(map(len, lists[:place]))
    return Consumer(literal(before + task["index"]), sum(map(len, lists)), "TF_CONFIG")


def by_tpu(pod: Manifest) -> Consumer | None:
    """By the pod's place in a TPU slice, or in several; None without. Raises RefusedError."""
    worker = env(pod, "TPU_WORKER_ID")
    if worker is None:
        return None
    hosts = env_text(pod, "TPU_WORKER_HOSTNAMES")
    count = len(hosts.split(",")) if hosts else None
    slices = number(env_text(pod, "MEGASCALE_NUM_SLICES") or "1", "MEGASCALE_NUM_SLICES")
    if "value" in worker:
        worker = literal(number(worker["value"], "TPU_WORKER_ID"))
    if slices == 1:
        return Consumer(worker, count, "TPU_WORKER_ID")
    slice_ = env_text(pod, "MEGASCALE_SLICE_ID")
    if count is None or "value" not in worker or not slice_:
        raise RefusedError(
            "MEGASCALE_NUM_SLICES says several TPU slices, and the pod's place in them needs "
            f"TPU_WORKER_ID, TPU_WORKER_HOSTNAMES and MEGASCALE_SLICE_ID as plain values: {REMEDY}"
        )
    index = number(slice_, "MEGASCALE_SLICE_ID") * count + int(worker["value"])
    return Consumer(literal(index), slices * count, "TPU_WORKER_ID and MEGASCALE_SLICE_ID")


def _tf_task(pod: Manifest) -> dict[str, Any] | None:
    """TF_CONFIG's cluster, and its task's type and index; None where only the pod will know."""
    text = env_text(pod, "TF_CONFIG")
    if not text.strip() or "$(" in text:
        return None
    try:
        config = json.loads(text)
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        found = {"cluster": dict(cluster), "type": task.get("type"), "index": task.get("index", 0)}
    except (ValueError, AttributeError, TypeError) as error:
        raise RefusedError(f"TF_CONFIG: not what TensorFlow reads: {error}") from None
    return found if cluster else None
