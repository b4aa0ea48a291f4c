"""A thread that sets the pods of a namespace to running and ready, as kubelets would."""

from __future__ import annotations

import threading
from types import TracebackType

from testing.operator.cluster import Cluster, Json, RequestRejected

_READY = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready", "ContainersReady")]
_ADDRESS = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
_SECONDS = 0.2


class Kubelet:
    """Makes pods ready while the context lasts. No dispatcher listens at their address."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(_SECONDS):
            for pod in self._cluster.list("Pod"):
                if "podIP" not in pod.get("status", {}):
                    self._make_ready(pod)

    def _make_ready(self, pod: Json) -> None:
        status = {"phase": "Running", "conditions": _READY, **_ADDRESS}
        try:
            self._cluster.patch("Pod", pod["metadata"]["name"], {"status": status}, "status")
        except RequestRejected as error:
            if error.status not in (404, 409):  # deleted or changed after the list
                raise
