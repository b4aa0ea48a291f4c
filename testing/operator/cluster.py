"""The API server as tests speak with it: plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubernetes import client as kubernetes

from distributed_input_operator.kube.kinds import BY_NAME, INPUT, POLICY
from testing.operator.processes import eventually

Json = dict[str, Any]


class Refused(Exception):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Cluster:
    """One namespace of an API server."""

    def __init__(self, api: kubernetes.ApiClient, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> Json:
        """One request. Raises Refused."""
        try:
            sent = self._api.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params={"Accept": "application/json", "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = self._api.call_api(*sent, _request_timeout=20)
            text = answer.read()
        except kubernetes.ApiException as error:
            raise Refused(error.status or 0, str(error)) from None
        try:
            data: Json = json.loads(text)
        except ValueError:
            raise Refused(answer.status, text.decode()) from None
        if answer.status >= 300:
            raise Refused(answer.status, data["message"])
        return data

    def path(self, kind: str, name: str = "", subresource: str = "") -> str:
        """The path of an object in this namespace."""
        return BY_NAME[kind].path(self.namespace, name, subresource)

    def create(self, manifest: Mapping[str, Any], **query: str) -> Json:
        """Create an input, or a child."""
        return self.call("POST", self.path(manifest["kind"]), manifest, **query)

    def get(self, kind: str, name: str) -> Json | None:
        """One object, or None."""
        try:
            return self.call("GET", self.path(kind, name))
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, selector: str = "") -> list[Json]:
        """All of a kind."""
        return self.call("GET", self.path(kind), labelSelector=selector)["items"]

    def patch(
        self, kind: str, name: str, change: Json, subresource: str = "", **query: str
    ) -> Json:
        """A merge patch."""
        path = self.path(kind, name, subresource)
        return self.call("PATCH", path, change, "application/merge-patch+json", **query)

    def delete(self, kind: str, name: str) -> None:
        """Delete one object."""
        self.call("DELETE", self.path(kind, name))

    def children(self, name: str) -> set[tuple[str, str]]:
        """Kind and name of all that belongs to an input, but pods."""
        kinds = set(BY_NAME) - {INPUT.kind, POLICY.kind, "Event", "Pod"}
        selector = f"distributed-input.dev/input={name}"
        return {
            (kind, one["metadata"]["name"]) for kind in kinds for one in self.list(kind, selector)
        }

    def condition(self, name: str, kind: str) -> Json:
        """A condition of an input; empty where there is none."""
        found = (self.get(INPUT.kind, name) or {}).get("status", {}).get("conditions", [])
        return next((one for one in found if one["type"] == kind), {})

    def pods(self, name: str, component: str = "worker") -> list[Json]:
        """The pods of one part that are not on their way out."""
        labels = f"distributed-input.dev/input={name},app.kubernetes.io/component={component}"
        return [p for p in self.list("Pod", labels) if "deletionTimestamp" not in p["metadata"]]

    def play_kubelet(self, name: str, component: str = "worker", ip: str = "10.1.2.3") -> None:
        """All pods of a part run and are ready, as far as the API server knows."""
        for pod in self.pods(name, component):
            ready = [
                {"type": kind, "status": "True"}
                for kind in ("PodScheduled", "Ready", "ContainersReady")
            ]
            status = {"phase": "Running", "conditions": ready, "podIP": ip, "podIPs": [{"ip": ip}]}
            try:
                self.patch("Pod", pod["metadata"]["name"], {"status": status}, "status")
            except Refused as refused:
                if refused.status != 404:  # gone since it was listed
                    raise

    def all_serve(self, name: str, workers: int) -> None:
        """Play kubelet until the input is ready with so many workers."""

        def ready() -> bool:
            for component in ("dispatcher", "worker"):
                self.play_kubelet(name, component)
            status = (self.get(INPUT.kind, name) or {}).get("status", {})
            return (
                self.condition(name, "Ready").get("status") == "True"
                and status["workers"]["summary"] == f"{workers}/{workers}"
            )

        eventually(ready)
