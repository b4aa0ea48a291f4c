"""Builders of manifests: the text that a user would write."""

from __future__ import annotations

import textwrap

HEAD = """\
apiVersion: distributed-input.dev/v1alpha1
kind: DistributedInput
metadata: {name: digits}
"""


def manifest(spec: str = "", name: str = "digits") -> str:
    """A DistributedInput with this text under `spec:`, which stands on line 4."""
    head = HEAD.replace("digits", name)
    return f"{head}spec:\n{textwrap.indent(textwrap.dedent(spec), '  ')}" if spec else head
