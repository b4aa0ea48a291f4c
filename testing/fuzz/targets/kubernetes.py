"""What the API server sends to the webhook, and certificates that the operator reads again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from distributed_input.api import files, names
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.certificates.issuer import UnusableIssuer
from distributed_input_operator.certificates.renewal import first, renewed
from distributed_input_operator.objects.kind import Kind
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.webhook import certificates
from distributed_input_operator.webhook.admission import Injector
from testing.certificates import LIFE, authority, now
from testing.fuzz.target import Subject, Target
from testing.issuer import PlatformRoot

_INPUT = {
    "apiVersion": "distributed-input.dev/v1beta1",
    "kind": "DistributedInput",
    "metadata": {"name": "train", "namespace": "ml"},
    "spec": {},
}


class _Api:
    """An API server with one input and one Job."""

    async def get(self, kind: Kind, _namespace: str, name: str) -> Any:
        if kind.kind == "DistributedInput":
            return _INPUT if name == "train" else None
        completion = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
        return {"kind": kind.kind, "metadata": {"name": name}, "spec": completion}


def _pod(**spec: Any) -> dict[str, Any]:
    metadata = {
        "name": "trainer",
        "labels": {names.INJECT_LABEL: "true"},
        "annotations": {names.INPUTS_ANNOTATION: "train"},
    }
    containers = [{"name": "trainer", "image": "t:1", **spec}]
    return {"metadata": metadata, "spec": {"containers": containers, "volumes": []}}


def _texts() -> Subject:
    """The free texts of a trainer pod. The API server has checked the types of its fields."""
    settings = Settings("worker:1", "sidecar:1")
    slots = ("TF_CONFIG", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "MEGASCALE_NUM_SLICES",
             "MEGASCALE_SLICE_ID")  # fmt: skip
    annotations = (
        names.INPUTS_ANNOTATION,
        names.CONSUMERS_ANNOTATION,
        names.CONSUMER_INDEX_ANNOTATION,
    )

    def parse(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        parts = dict(line.partition("=")[::2] for line in text.split("\n"))
        pod = _pod(env=[{"name": one, "value": parts[one]} for one in slots if one in parts])
        noted = {one: parts[one] for one in annotations if one in parts}
        pod["metadata"]["annotations"] |= noted
        request = {"uid": "u", "namespace": "ml", "object": pod}
        response = asyncio.run(Injector(_Api(), settings).respond(request))  # type: ignore[arg-type]
        json.dumps(response)

    config = {"cluster": {"chief": ["a"], "worker": ["b", "c"]}, "task": {"type": "worker"}}
    seeds = [
        f"TF_CONFIG={json.dumps(config)}",
        "TPU_WORKER_ID=1\nTPU_WORKER_HOSTNAMES=a,b\nMEGASCALE_NUM_SLICES=2\nMEGASCALE_SLICE_ID=1",
        f"{names.CONSUMERS_ANNOTATION}=2\n{names.CONSUMER_INDEX_ANNOTATION}=1",
        f"{names.INPUTS_ANNOTATION}=train, train\n{names.CONSUMERS_ANNOTATION}=1",
    ]
    return Subject(parse, [one.encode() for one in seeds], ())


def _issued() -> Subject:
    """The certificates in the ConfigMap of an input, which a user may have written."""
    own: InputAuthority = authority()
    issuer = PlatformRoot().issuer()

    def parse(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        own.seconds_left(first(text), "sidecar", now(), LIFE)
        live = {files.AUTHORITIES_KEY: text, files.certificate("dispatcher"): text}
        for signer in (issuer, UnusableIssuer("SecretMissing", "")):
            renewed(own, live, now(), LIFE, signer)

    seeds = [own.issue("sidecar", now(), LIFE), own.certificate_from(issuer, now())]
    return Subject(parse, [one.encode() for one in seeds], ())


def _webhook() -> Subject:
    hosts = ["webhook.ns.svc"]
    made = certificates.generate(hosts, now())
    split = b"\n#part\n"

    def parse(data: bytes) -> None:
        chain, key, bundle, *_ = (*data.split(split), b"", b"", b"")
        found = certificates.Certificate(chain, key, bundle)
        certificates.is_usable(found, hosts, now())
        certificates.trusts(made.bundle, found)

    return Subject(parse, [split.join((made.chain, made.key, made.bundle))], ())


TARGETS = (
    Target("kubernetes/pods", "user → webhook: texts in a trainer pod", _texts, 0.3),
    Target("kubernetes/issued", "user → operator: certificates in a ConfigMap", _issued, 0.3),
    Target("kubernetes/webhook", "Secret of the webhook → operator", _webhook, 0.3),
)
