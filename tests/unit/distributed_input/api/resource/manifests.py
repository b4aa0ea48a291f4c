"""Builders of manifests, and a check of error messages."""

from __future__ import annotations

import textwrap

import pytest

from distributed_input.api.resource.parse import parse
from distributed_input.api.resource.problems import ResourceError

HEAD = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: digits}
"""


def manifest(spec: str = "", name: str = "digits") -> str:
    """Return a DistributedInput as YAML, with `spec:` on line 4 and this text below it."""
    head = HEAD.replace("digits", name)
    return f"{head}spec:\n{textwrap.indent(textwrap.dedent(spec), '  ')}" if spec else head


def check_problem(text: str, start: str, message: str) -> None:
    """Check that a text has one problem, which starts with `start` and has `message` in it."""
    with pytest.raises(ResourceError) as caught:
        parse(text, "input.yaml")
    (line,) = caught.value.problems
    assert line.startswith(start)
    assert message in line


def check_spec_problem(spec: str, place: str, message: str) -> None:
    """Check that a spec, whose text starts on line 5, has one problem: `LINE: FIELD: message`."""
    check_problem(manifest(spec), f"input.yaml:{place}: ", message)
