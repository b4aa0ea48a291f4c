"""A parser under test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """A parser that is ready to be called.

    Attributes:
        parse: the parser. It may keep state between inputs, as a server does.
        seeds: valid inputs. A parser that refuses one is a finding.
        errors: what the parser may raise.
        is_json: the inputs are JSON, so that their values are changed, too.
        seal: makes a changed input pass a checksum; used for half of the inputs.
    """

    parse: Callable[[bytes], object]
    seeds: Sequence[bytes]
    errors: tuple[type[BaseException], ...]
    is_json: bool = False
    seal: Callable[[bytes], bytes] | None = None


@dataclass(frozen=True)
class Target:
    """A parser by its name.

    Attributes:
        name: for `--only`.
        source: who may send it what.
        build: returns the subject. It is called in the process that parses.
        weight: share of the inputs, compared to other targets.
        known: why it is known to fail, so that it runs only if `--only` is its whole name.
    """

    name: str
    source: str
    build: Callable[[], Subject]
    weight: float = 1.0
    known: str = ""
