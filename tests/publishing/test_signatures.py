"""Signatures of images, of the chart and of files, with a key of this machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.charts.rendering import helm
from testing.cluster.binaries import binary
from testing.publishing import artifacts, servers, supply_chain
from testing.publishing.signing import RefusedError, Signer

pytestmark = [pytest.mark.signatures, pytest.mark.timeout(300)]


@pytest.fixture
def registry() -> Iterator[str]:
    with servers.oci_registry() as host:
        yield f"{host}/team"


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "keys")


def crane(*arguments: str | Path) -> str:
    done = subprocess.run(
        (binary("crane"), *arguments), check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def pushed(folder: Path, image: str, content: str = "some") -> str:
    """Push an image from an OCI layout, as a release does. Return NAME@DIGEST."""
    folder.mkdir(parents=True)
    (folder / "file").write_text(content)
    subprocess.run(("tar", "-C", folder, "-cf", folder / "layer.tar", "file"), check=True)
    crane("append", "--new_layer", folder / "layer.tar", "--new_tag", image)
    layout = folder / "layout"
    crane("pull", "--format", "oci", image, layout)
    crane("push", layout, f"{image}-layout")
    return f"{image.rpartition(':')[0]}@{crane('digest', f'{image}-layout')}"


def test_images_and_their_sboms_are_signed(registry: str, signer: Signer, tmp_path: Path) -> None:
    other = Signer(tmp_path / "other")
    sboms = {path.name: path for path in supply_chain.build_sboms(tmp_path)}
    for image in artifacts.IMAGES:
        reference = pushed(tmp_path / image, f"{registry}/{image}:1")
        with pytest.raises(RefusedError):
            signer.verify(reference)
        signer.sign(reference)
        signer.verify(reference)
        with pytest.raises(RefusedError):
            signer.verify_sbom(reference)
        signer.attest(reference, sboms[f"{image}.cdx.json"])
        signer.verify_sbom(reference)
        for refused in (other.verify, other.verify_sbom):
            with pytest.raises(RefusedError):
                refused(reference)
        changed = pushed(tmp_path / "changed" / image, f"{registry}/{image}:1", "changed")
        with pytest.raises(RefusedError):
            signer.verify(changed)


def test_the_chart_is_signed(registry: str, signer: Signer, tmp_path: Path) -> None:
    chart = artifacts.build_chart(tmp_path, registry)
    done = helm("push", str(chart), f"oci://{registry}/charts", "--plain-http")
    assert done.returncode == 0, done.stderr
    found = re.search(r"sha256:[0-9a-f]{64}", done.stdout + done.stderr)
    assert found
    reference = f"{registry}/charts/{artifacts.CHART}@{found[0]}"
    with pytest.raises(RefusedError):
        signer.verify(reference)
    signer.sign(reference)
    signer.verify(reference)


def test_a_changed_file_is_refused(signer: Signer, tmp_path: Path) -> None:
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("some")
    bundle = signer.sign_file(sums)
    signer.verify_file(sums, bundle)
    with pytest.raises(RefusedError):
        Signer(tmp_path / "other").verify_file(sums, bundle)
    sums.write_text("changed")
    with pytest.raises(RefusedError):
        signer.verify_file(sums, bundle)
