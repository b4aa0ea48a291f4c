"""The objects that all parts of an input share: configuration, identity, network policy, token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distributed_input.api import files, names
from distributed_input.api.config import CodeSource
from distributed_input.api.resource.input import DistributedInput, input_config
from distributed_input_operator.objects.children import manifest
from distributed_input_operator.objects.dispatcher import dispatcher_port
from distributed_input_operator.objects.snapshot import Manifest, Settings

CREATED_ONCE = frozenset({"ServiceAccount"})
"""Kinds of children that the operator creates if they are missing, and never changes."""


def shared_objects(resource: DistributedInput, settings: Settings) -> list[dict[str, Any]]:
    """Return a ServiceAccount without permissions, the sidecars' ConfigMap, and a NetworkPolicy."""
    name = names.shared(resource.metadata.name)
    config = {files.CONFIG_KEY: _config(resource)}
    policy = _network_policy(resource, settings)
    return [
        manifest(resource, "v1", "ServiceAccount", name, {"automountServiceAccountToken": False}),
        manifest(resource, "v1", "ConfigMap", name, {"data": config}),
        manifest(resource, "networking.k8s.io/v1", "NetworkPolicy", name, {"spec": policy}),
    ]


def token_secret(resource: DistributedInput, token: str) -> dict[str, Any]:
    """Return the Secret with the input's token. The operator creates it, and never reads it."""
    data = {"stringData": {files.TOKEN_KEY: token}}
    return manifest(resource, "v1", "Secret", names.shared(resource.metadata.name), data)


def key_secret(resource: DistributedInput, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the Secret with the private keys of an encrypted input."""
    name = names.certificates(resource.metadata.name)
    return manifest(resource, "v1", "Secret", name, {"stringData": dict(keys)})


def certificate_objects(
    resource: DistributedInput, certificates: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the ConfigMap with the certificates of an encrypted input, which are public.

    It is left as it is if there are none, because the operator's key could not be read.
    """
    if not resource.spec.is_encrypted or not certificates:
        return []
    name = names.certificates(resource.metadata.name)
    return [manifest(resource, "v1", "ConfigMap", name, {"data": dict(certificates)})]


def _config(resource: DistributedInput) -> str:
    config = input_config(resource)
    if config.dataset.source.path is not None:  # a folder of the user's machine
        config = replace(config, dataset=replace(config.dataset, source=CodeSource()))
    return json.dumps({"inputs": {resource.metadata.name: config.to_json()}}, sort_keys=True)


def _network_policy(resource: DistributedInput, settings: Settings) -> dict[str, Any]:
    """Return the spec of the NetworkPolicy for dispatcher and workers.

    The input's trainers and its own pods can connect to all its services, the operator to the
    dispatcher, and every pod to the metrics. Other connections are refused.
    """
    name = resource.metadata.name
    port = dispatcher_port(resource)
    clients = [
        {"podSelector": {"matchLabels": {names.INPUT_LABEL: name}}},
        {"podSelector": {"matchLabels": {names.reads_label(name): "true"}}},
    ]
    ports = [port, names.WORKER_PORT, names.WORKER_TRANSFER_PORT]
    if resource.spec.tf_data_service is not None:
        ports += [resource.spec.tf_data_service.port, names.TF_DATA_WORKER_PORT]
    operator = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": settings.namespace},
        },
        "podSelector": {"matchLabels": {names.COMPONENT_LABEL: names.OPERATOR_COMPONENT}},
    }
    services: dict[str, Any] = {"ports": [_tcp(one) for one in ports]}
    return {
        "podSelector": {"matchLabels": {names.INPUT_LABEL: name}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {**services, "from": clients} if resource.spec.is_restricted else services,
            {"from": [operator], "ports": [_tcp(port)]},
            {"ports": [_tcp(names.METRICS_PORT)]},
        ],
    }


def with_ports_of(policy: Manifest, live: Manifest) -> Manifest:
    """Return the NetworkPolicy with the ports of a dispatcher that keeps its pod for now."""
    pod = live["spec"]["template"]["spec"]
    ports = [one["containerPort"] for each in pod["containers"] for one in each.get("ports", ())]
    *rules, open_to_all = policy["spec"]["ingress"]
    known = [*rules[0]["ports"], *open_to_all["ports"]]
    more = [_tcp(one) for one in ports if _tcp(one) not in known]
    wider = [{**rule, "ports": [*rule["ports"], *more]} for rule in rules]
    return {**policy, "spec": {**policy["spec"], "ingress": [*wider, open_to_all]}}


def _tcp(port: int) -> dict[str, Any]:
    return {"port": port, "protocol": "TCP"}
