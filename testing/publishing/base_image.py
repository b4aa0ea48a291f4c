"""Pins the base image in the Dockerfile to the digest of its tag: `make base-image`.

A tag moves: two builds of one commit could have different base images. The digest is that of the
index, which has the image of each platform. Run it again for security fixes of the base image.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from testing.cluster.binaries import binary
from testing.publishing.artifacts import ROOT
from testing.publishing.supply_chain import base_image

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SECONDS = 120.0


def pinned(dockerfile: str, digest: str) -> str:
    """Return the Dockerfile with its base image at a digest. The tag stays, for people."""
    assert _DIGEST.fullmatch(digest), digest
    image = base_image(dockerfile)
    tag = image.partition("@")[0]
    return dockerfile.replace(f"ARG BASE_IMAGE={image}\n", f"ARG BASE_IMAGE={tag}@{digest}\n")


def update(path: Path = ROOT / "Dockerfile") -> str:
    """Write the current digest of the base image's tag. Return the image.

    Raises:
        subprocess.CalledProcessError: the registry did not return it. stderr has the reason.
    """
    before = path.read_text()
    tag = base_image(before).partition("@")[0]
    done = subprocess.run(
        (binary("crane"), "digest", tag),
        check=True,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    path.write_text(pinned(before, done.stdout.strip()))
    return base_image(path.read_text())


if __name__ == "__main__":
    try:
        print(update())
    except subprocess.CalledProcessError as error:
        sys.exit(f"base image: the registry gave no digest, nothing was changed: {error.stderr}")
