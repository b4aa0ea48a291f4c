"""A kind of Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import KIND
from distributed_input.api.resource.policy import POLICY_KIND


@dataclass(frozen=True)
class Kind:
    """One kind: its path, and the verbs that the operator needs."""

    kind: str
    group: str
    """Empty for the core group."""
    version: str
    plural: str
    verbs: tuple[str, ...] = ("get", "list", "watch", "create", "patch")
    cluster_scoped: bool = False

    @property
    def api_version(self) -> str:
        """The value of an object's apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the path of the URL. A `namespace` of None means all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{namespace}" if namespace else ""
        parts = [root + middle, self.plural, name, subresource]
        return "/".join(part for part in parts if part)

    @property
    def selector(self) -> str:
        """The label selector of the objects that the operator uses. Inputs have no label."""
        return "" if self.kind in (KIND, POLICY_KIND) else names.INPUT_LABEL

    def describes(self, manifest: Mapping[str, Any]) -> bool:
        """Whether an object, or an owner reference, is of this kind in any version."""
        group, _, _ = str(manifest.get("apiVersion", "")).rpartition("/")
        return (group, manifest.get("kind")) == (self.group, self.kind)
