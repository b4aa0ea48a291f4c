"""Rules in CEL on what an input may be when it is created, and how it may change later.

They apply in a cluster alone, so the models have no twins of them: `distributed-input run` uses
private sockets, and a file has no earlier version. The API server removes the status of a new
object before it checks the rules, and each object that exists has one. So an object without a
status is a new one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """How a version of the resource writes its values."""

    none: str
    """Value of spec.encryption: no encryption."""
    restricted: str
    """Value of spec.networkPolicy in CEL: only the input's trainers."""
    restricted_text: str
    """The same in YAML."""


ALPHA_WORDS = Words("none", "true", "true")
BETA_WORDS = Words("None", "'Restricted'", "Restricted")


def life_rules(words: Words) -> tuple[tuple[str, str], ...]:
    """Return pairs of a rule and its message, for the root of the schema."""
    has_service = "has(self.spec.tfDataService)"
    had_service = "has(oldSelf.spec.tfDataService)"
    accepts = f"(has(self.spec.encryption) && self.spec.encryption == '{words.none}')"
    restricts = f"self.spec.networkPolicy == {words.restricted}"
    was_open = f"oldSelf.spec.networkPolicy != {words.restricted}"
    no_authentication = (
        "spec.tfDataService: has no authentication and cannot be encrypted: set encryption: "
        f"{words.none} to accept that, or remove tfDataService"
    )
    open_service = (
        "spec.tfDataService: has no authentication, and without a NetworkPolicy every pod can "
        f"connect to it: set networkPolicy: {words.restricted_text}, or remove tfDataService"
    )
    return (
        (
            # The field may be added later with the value that already applies.
            "has(self.spec.encryption) "
            "? self.spec.encryption == (has(oldSelf.spec.encryption) ? oldSelf.spec.encryption "
            ": has(oldSelf.status.encryption) ? oldSelf.status.encryption : '') "
            ": !has(oldSelf.spec.encryption)",
            "spec.encryption is immutable, because running trainers have either a token or a "
            "certificate: set the value of status.encryption, or create a new DistributedInput "
            "with another name",
        ),
        (f"has(self.status) || !{has_service} || {accepts}", no_authentication),
        (f"!{has_service} || {had_service} || {accepts}", no_authentication),
        (f"has(self.status) || !{has_service} || {restricts}", open_service),
        (f"!{has_service} || {restricts} || ({had_service} && {was_open})", open_service),
    )
