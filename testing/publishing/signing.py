"""Signs artefacts with a key of one's own and verifies them, without a transparency log."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testing.cluster.binaries import binary

_NO_LOG = ("--yes", "--use-signing-config=false", "--tlog-upload=false")
_IGNORE_LOG = "--insecure-ignore-tlog=true"
_SECONDS = 60.0


class RefusedError(Exception):
    """A signature is missing or does not fit."""


class Signer:
    """A pair of keys in a new folder, without a password.

    Args:
        folder: the folder, which is created.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._cosign("generate-key-pair")
        self._private, self._public = ("--key", "cosign.key"), ("--key", "cosign.pub")

    def sign(self, image: str) -> None:
        """Sign an image or a chart in a registry: NAME@DIGEST."""
        self._cosign("sign", *_NO_LOG, *self._private, image)

    def verify(self, image: str) -> None:
        """Verify a signature. Raise RefusedError if it does not fit."""
        self._cosign("verify", *self._public, _IGNORE_LOG, image)

    def attest(self, image: str, sbom: Path) -> None:
        """Add a signed SBOM to an image."""
        kind = ("--type", "cyclonedx", "--predicate", sbom)
        self._cosign("attest", *_NO_LOG, *self._private, *kind, image)

    def verify_sbom(self, image: str) -> None:
        """Verify the SBOM of an image. Raise RefusedError if there is none that fits."""
        kind = ("--type", "cyclonedx")
        self._cosign("verify-attestation", *self._public, _IGNORE_LOG, *kind, image)

    def sign_file(self, file: Path) -> Path:
        """Sign a file. Return the path of the signature."""
        bundle = file.with_name(f"{file.name}.sigstore.json")
        self._cosign("sign-blob", *_NO_LOG, *self._private, "--bundle", bundle, file)
        return bundle

    def verify_file(self, file: Path, bundle: Path) -> None:
        """Verify the signature of a file. Raise RefusedError if it does not fit."""
        self._cosign("verify-blob", *self._public, _IGNORE_LOG, "--bundle", bundle, file)

    def _cosign(self, *arguments: str | Path) -> None:
        done = subprocess.run(
            (binary("cosign"), *arguments),
            cwd=self._folder,
            # The cache of the public log's keys would be in the home folder.
            env={**os.environ, "COSIGN_PASSWORD": "", "HOME": str(self._folder)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if done.returncode:
            raise RefusedError(done.stderr)
