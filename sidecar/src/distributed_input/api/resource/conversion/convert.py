"""The conversion of a whole object, with what the other version cannot express."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from distributed_input.api.resource.conversion import kept
from distributed_input.api.resource.conversion.kept import FieldPath, Json
from distributed_input.api.resource.conversion.normal import to_alpha, to_beta
from distributed_input.api.resource.conversion.policy import (
    closed,
    opened,
    policy_to_alpha,
    policy_to_beta,
)
from distributed_input.api.resource.conversion.workers import ALPHA_FIELDS
from distributed_input.api.resource.input import API_VERSION, GROUP
from distributed_input.api.resource.policy import POLICY_KIND
from distributed_input.api.resource.v1beta1.input import BETA_VERSION

VERSIONS = (API_VERSION, BETA_VERSION)
KEPT = {version: f"{GROUP}/{version.partition('/')[2]}-fields" for version in VERSIONS}
"""The annotation with the fields that only this version has, on objects of the other version."""
_FIELDS = ("spec", "status")
_DATASET: tuple[FieldPath, ...] = (("spec", "dataset"),)
_TEMPLATE: dict[str, tuple[FieldPath, ...]] = {
    API_VERSION: tuple(("spec", "workers", name) for name in sorted(ALPHA_FIELDS)),
    BETA_VERSION: (("spec", "workers", "template"), ("spec", "workers", "accelerator")),
}
_Group = dict[str, tuple[FieldPath, ...]]
_GROUPS: tuple[_Group, ...] = (
    {API_VERSION: _DATASET, BETA_VERSION: _DATASET},
    _TEMPLATE,
)
"""Fields that belong together. If one changes, what is kept of the others is lost: an entry point
excludes `fromTrainer`, and an old pod template could hide a new image."""


@dataclass(frozen=True)
class _Kind:
    """The conversion of one kind."""

    forms: dict[str, Callable[[Json], Json]]
    """Spec and status of a version, from those of the other version."""
    groups: tuple[_Group, ...] = ()
    opened: Callable[[Json], Json] = dict
    """Spec and status as the forms take them."""
    closed: Callable[[Json], Json] = dict
    """The reverse of `opened`."""


_INPUT = _Kind({API_VERSION: to_alpha, BETA_VERSION: to_beta}, _GROUPS)
_POLICY = _Kind(
    {API_VERSION: policy_to_alpha, BETA_VERSION: policy_to_beta}, opened=opened, closed=closed
)


def convert(found: Json, version: str) -> Json:
    """Return an input or a policy in another version. The argument does not change.

    Laws: `convert(convert(x, other), x["apiVersion"]) == x`. A change of a field between the two
    conversions appears in the result, and then only what it contradicts is lost. What exceeds the
    limits of `kept`, such as the size of all annotations, is lost, too.

    Args:
        found: any object that the API server accepted, or a part of one.
        version: one of `VERSIONS`.

    Raises:
        ValueError: the object's version, or `version`, is not one of `VERSIONS`.
        RecursionError: the object is nested too deeply.
    """
    present = found.get("apiVersion")
    if present not in VERSIONS or version not in VERSIONS:
        raise ValueError(f"cannot convert {present} to {version}: use {' or '.join(VERSIONS)}")
    if present == version:
        return found
    kind = _POLICY if found.get("kind") == POLICY_KIND else _INPUT
    forward, back = kind.forms[version], kind.forms[present]
    body = kind.opened({key: found[key] for key in _FIELDS if key in found})
    normal = forward(body)
    wanted = back(normal)
    notes = kept.parse(_annotations(found).get(KEPT[version]))
    expected = _seen_once(version, body, present, kind.groups)
    result = kept.restored(
        normal,
        [one for one in notes if one.seen == expected(one.path)],
        lambda one: _means(back, one, wanted),
    )
    # What the conversion back would lose.
    seen = _seen_once(present, result, version, kind.groups)
    lost = [replace(one, seen=seen(one.path)) for one in kept.differences(back(result), body)]
    head = {key: value for key, value in found.items() if key not in _FIELDS}
    note = kept.to_text(lost, _room(_annotations(found), KEPT[present]))
    return {**head, **_metadata(found, {KEPT[version]: None, KEPT[present]: note})} | {
        **kind.closed(result),
        "apiVersion": version,
    }


def _seen_once(
    version: str, converted: Json, shown: str, of: tuple[_Group, ...]
) -> Callable[[FieldPath], str]:
    """Return `_seen` for one object. It computes each digest once."""
    digests: dict[tuple[int, ...], str] = {}

    def seen(path: FieldPath) -> str:
        groups = _groups(path, version, of)
        if groups not in digests:
            digests[groups] = _seen(path, version, converted, shown, of)
        return digests[groups]

    return seen


def _seen(
    path: FieldPath,
    version: str,
    converted: Json,
    shown: str,
    of: tuple[_Group, ...] = _GROUPS,
) -> str:
    """Return a digest of the fields that a field belongs to, in the converted object.

    Args:
        path: of the field, in its own version.
        version: that version.
        converted: the object in the other version.
        shown: the other version.
        of: the groups of fields.
    """
    groups = _groups(path, version, of)
    found = [kept.at(converted, member) for one in groups for member in of[one][shown]]
    return kept.digest(found) if groups else ""


def _groups(path: FieldPath, version: str, of: tuple[_Group, ...]) -> tuple[int, ...]:
    return tuple(
        place
        for place, one in enumerate(of)
        if any(_overlaps(path, member) for member in one[version])
    )


def _overlaps(one: FieldPath, other: FieldPath) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def _means(back: Callable[[Json], Json], one: Json, wanted: Json) -> bool:
    """Whether the conversion back gives `wanted`. The annotation may have any content."""
    try:
        return kept.same(back(one), wanted)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return False


def _room(annotations: Json, key: str) -> int:
    """Return the maximum size of one annotation, so that all others fit, too."""
    others = [
        part
        for name in annotations
        if name not in KEPT.values()
        for part in (name, annotations[name])
    ]
    used = sum(len(str(part).encode(errors="replace")) for part in others)
    return kept.MAX_BYTES - used - len(key)


def _annotations(found: Json) -> Json:
    metadata = found.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _metadata(found: Json, changes: dict[str, str | None]) -> Json:
    """Return the field `metadata` with these annotations. None removes one."""
    before = _annotations(found)
    after: dict[str, Any] = {key: value for key, value in before.items() if key not in changes}
    after |= {key: value for key, value in changes.items() if value is not None}
    if after == before:
        return {"metadata": found["metadata"]} if "metadata" in found else {}
    metadata = {key: found["metadata"][key] for key in found.get("metadata", {})}
    metadata.pop("annotations", None)
    return {"metadata": {**metadata, **({"annotations": after} if after else {})}}
