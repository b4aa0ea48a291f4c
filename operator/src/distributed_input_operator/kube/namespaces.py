"""The labels of namespaces, which select the budgets of inputs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import NAMESPACE

_log = logging.getLogger(__name__)

SECONDS = 60.0
"""Age up to which labels are used. Only administrators change them, and seldom."""


class NamespaceLabels:
    """Reads the labels of namespaces, each at most once a minute."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[str, tuple[float, Mapping[str, str] | None]] = {}

    async def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace. None: unknown, because it cannot be read."""
        known = self._known.get(namespace)
        if known is not None and self._clock() - known[0] < SECONDS:
            return known[1]
        try:
            found = await self._api.get(NAMESPACE, "", namespace)
        except ApiError as error:
            _log.warning("cannot read the labels of namespace %s: %s", namespace, error)
            if error.retryable:
                return known[1] if known is not None else None
            found = None
        labels = None if found is None else dict(found["metadata"].get("labels") or {})
        self._known[namespace] = self._clock(), labels
        return labels
