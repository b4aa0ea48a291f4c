"""The table of permissions in docs/security.md: python -m testing.charts.permissions

It is generated from the rendered chart. The reason of a rule is the comment above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from testing.charts.rendering import Manifest, render

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_NAMESPACE = "NAMESPACE"
_VALUES = (
    "encryption.certManager.enabled=true",
    "encryption.certManager.issuerRef.name=platform",
)
_BEGIN, _END = "<!-- permissions: make permissions -->\n", "<!-- end of permissions -->\n"


@dataclass(frozen=True)
class Rule:
    """One rule of a role."""

    process: str
    """operator or webhook"""
    scope: str
    """Where the rule applies."""
    resources: str
    verbs: str
    reason: str


def rules() -> list[Rule]:
    """Return all rules of the chart with its default values, and an authority."""
    found = []
    for text in render(_NAMESPACE.lower(), *_VALUES).split("\n---\n"):
        role = yaml.safe_load(text)
        if role and role["kind"] in ("Role", "ClusterRole") and not _is_for_users(role):
            reasons = _reasons(text)
            assert len(reasons) == len(role["rules"]), role["metadata"]["name"]
            found += [
                _rule(role, rule, reason)
                for rule, reason in zip(role["rules"], reasons, strict=True)
            ]
    return found


def page(before: str) -> str:
    """Return the page with the current table."""
    head, _, rest = before.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return head + _BEGIN + _table() + _END + tail


def _is_for_users(role: Manifest) -> bool:
    return "rbac.authorization.k8s.io/aggregate-to-admin" in role["metadata"]["labels"]


def _table() -> str:
    lines = [
        "| Process | Where | Resources | Verbs | Reason |",
        "|---|---|---|---|---|",
        *(
            f"| {one.process} | {one.scope} | {one.resources} | {one.verbs} | {one.reason} |"
            for one in rules()
        ),
    ]
    return "\n".join(lines) + "\n"


def _rule(role: Manifest, rule: Manifest, reason: str) -> Rule:
    names = [name.replace(_NAMESPACE.lower(), _NAMESPACE) for name in rule.get("resourceNames", [])]
    resources = ", ".join(f"`{one}`" for one in rule["resources"])
    if names:
        resources += " named " + ", ".join(f"`{one}`" for one in names)
    return Rule(
        role["metadata"]["labels"]["app.kubernetes.io/component"],
        "cluster" if role["kind"] == "ClusterRole" else "its namespace",
        resources,
        ", ".join(rule["verbs"]),
        reason,
    )


def _reasons(text: str) -> list[str]:
    """Return the comment above each rule of a role. Empty: it has none."""
    found, comment = [], []
    for line in text.splitlines():
        if line.startswith("  # "):
            comment.append(line.removeprefix("  # "))
            continue
        if line.startswith("  - apiGroups:"):
            found.append(" ".join(comment))
        comment = []
    return found


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
