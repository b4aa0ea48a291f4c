"""A client of the API server for tests. It uses plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubernetes import client as kubernetes

from distributed_input_operator.kube.kinds import BY_NAME, INPUT, POLICY
from testing.operator.processes import eventually

Json = dict[str, Any]


class RequestRejected(Exception):
    """The API server rejected a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Cluster:
    """A client for one namespace of an API server."""

    def __init__(self, api: kubernetes.ApiClient, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> Json:
        """Send one request and return the response. Raises RequestRejected."""
        try:
            request = self._api.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params={"Accept": "application/json", "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = self._api.call_api(*request, _request_timeout=20)
            text = response.read()
        except kubernetes.ApiException as error:
            raise RequestRejected(error.status or 0, str(error)) from None
        try:
            data: Json = json.loads(text)
        except ValueError:
            raise RequestRejected(response.status, text.decode()) from None
        if response.status >= 300:
            raise RequestRejected(response.status, data["message"])
        return data

    def path(self, kind: str, name: str = "", subresource: str = "") -> str:
        """Return the path of an object in this namespace."""
        return BY_NAME[kind].path(self.namespace, name, subresource)

    def create(self, manifest: Mapping[str, Any], **query: str) -> Json:
        """Create an object."""
        return self.call("POST", self.path(manifest["kind"]), manifest, **query)

    def get(self, kind: str, name: str) -> Json | None:
        """Return one object, or None if it does not exist."""
        try:
            return self.call("GET", self.path(kind, name))
        except RequestRejected as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, selector: str = "") -> list[Json]:
        """Return all objects of a kind."""
        return self.call("GET", self.path(kind), labelSelector=selector)["items"]

    def patch(
        self, kind: str, name: str, patch_body: Json, subresource: str = "", **query: str
    ) -> Json:
        """Send a merge patch."""
        path = self.path(kind, name, subresource)
        return self.call("PATCH", path, patch_body, "application/merge-patch+json", **query)

    def delete(self, kind: str, name: str) -> None:
        """Delete one object."""
        self.call("DELETE", self.path(kind, name))

    def children(self, name: str) -> set[tuple[str, str]]:
        """Return kind and name of each child of an input, without pods."""
        kinds = set(BY_NAME) - {INPUT.kind, POLICY.kind, "Event", "Pod"}
        selector = f"distributed-input.dev/input={name}"
        return {
            (kind, one["metadata"]["name"]) for kind in kinds for one in self.list(kind, selector)
        }

    def condition(self, name: str, kind: str) -> Json:
        """Return a condition of an input, or an empty dict if there is none."""
        found = (self.get(INPUT.kind, name) or {}).get("status", {}).get("conditions", [])
        return next((one for one in found if one["type"] == kind), {})

    def pods(self, name: str, component: str = "worker") -> list[Json]:
        """Return the pods of one component that are not being deleted."""
        labels = f"distributed-input.dev/input={name},app.kubernetes.io/component={component}"
        return [p for p in self.list("Pod", labels) if "deletionTimestamp" not in p["metadata"]]

    def set_pod_status(self, name: str, status: Json) -> None:
        """Merge into a pod's status, as a kubelet does. Ignore a pod that was deleted."""
        try:
            self.patch("Pod", name, {"status": status}, "status")
        except RequestRejected as error:
            if error.status != 404:
                raise

    def simulate_kubelet(self, name: str, component: str = "worker", ip: str = "10.1.2.3") -> None:
        """Set the status of all pods of a component that may run to running and ready."""
        for pod in self.pods(name, component):
            if pod["spec"].get("schedulingGates"):
                continue
            ready = [
                {"type": kind, "status": "True"}
                for kind in ("PodScheduled", "Ready", "ContainersReady")
            ]
            status = {"phase": "Running", "conditions": ready, "podIP": ip, "podIPs": [{"ip": ip}]}
            self.set_pod_status(pod["metadata"]["name"], status)

    def run_pods(self, name: str) -> None:
        """Simulate the kubelet of all pods of an input. Its dispatcher listens on this machine."""
        self.simulate_kubelet(name, "dispatcher", "127.0.0.1")
        self.simulate_kubelet(name)

    def wait_until_ready(self, name: str, workers: int) -> None:
        """Simulate the kubelet until the input is ready with this number of workers."""

        def ready() -> bool:
            for component in ("dispatcher", "worker"):
                self.simulate_kubelet(name, component)
            status = (self.get(INPUT.kind, name) or {}).get("status", {})
            return (
                self.condition(name, "Ready").get("status") == "True"
                and status["workers"]["summary"] == f"{workers}/{workers}"
            )

        eventually(ready)
