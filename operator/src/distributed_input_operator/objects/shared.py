"""What an input's parts share: configuration, identity, network policy, token."""

from __future__ import annotations

import json
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.data_plane import data_plane_config
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.objects.children import manifest
from distributed_input_operator.objects.dispatcher import dispatcher_port
from distributed_input_operator.objects.snapshot import Settings


def shared_objects(resource: DistributedInput, settings: Settings) -> list[dict[str, Any]]:
    """ConfigMap for the sidecars, ServiceAccount without rights, NetworkPolicy."""
    name = names.shared(resource.metadata.name)
    return [
        manifest(resource, "v1", "ServiceAccount", name, automountServiceAccountToken=False),
        manifest(resource, "v1", "ConfigMap", name, data={names.CONFIG_KEY: _config(resource)}),
        manifest(
            resource,
            "networking.k8s.io/v1",
            "NetworkPolicy",
            name,
            spec=_network_policy(resource, settings),
        ),
    ]


def token_secret(resource: DistributedInput, token: str) -> dict[str, Any]:
    """The Secret with the input's token: created once, never applied again."""
    return manifest(
        resource,
        "v1",
        "Secret",
        names.shared(resource.metadata.name),
        stringData={names.TOKEN_KEY: token},
    )


def _config(resource: DistributedInput) -> str:
    config = data_plane_config(resource)
    if "path" in config["dataset"]["source"]:  # a folder of the laptop that the YAML came from
        config["dataset"]["source"] = {"image": True}
    return json.dumps({"inputs": {resource.metadata.name: config}}, sort_keys=True)


def _network_policy(resource: DistributedInput, settings: Settings) -> dict[str, Any]:
    """Rows are for the input's trainers and parts; metrics for everyone; the rest for nobody."""
    name = resource.metadata.name
    port = dispatcher_port(resource)
    ours = [
        {"podSelector": {"matchLabels": {names.INPUT_LABEL: name}}},
        {"podSelector": {"matchLabels": {names.reads_label(name): "true"}}},
    ]
    ports = [port, names.WORKER_PORT]
    if resource.spec.tf_data_service is not None:
        ports += [resource.spec.tf_data_service.port, names.TF_DATA_WORKER_PORT]
    operator = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": settings.namespace},
        },
        "podSelector": {"matchLabels": {names.COMPONENT_LABEL: names.OPERATOR_COMPONENT}},
    }
    rows: dict[str, Any] = {"ports": [_tcp(one) for one in ports]}
    return {
        "podSelector": {"matchLabels": {names.INPUT_LABEL: name}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {**rows, "from": ours} if resource.spec.network_policy else rows,
            {"from": [operator], "ports": [_tcp(port)]},
            {"ports": [_tcp(names.METRICS_PORT)]},
        ],
    }


def _tcp(port: int) -> dict[str, Any]:
    return {"port": port, "protocol": "TCP"}
