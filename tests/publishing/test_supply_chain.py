"""SBOMs, provenance, the base image's digest, and the search for vulnerabilities."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from testing.cluster.binaries import binary
from testing.publishing import base_image, servers, supply_chain, vulnerabilities
from testing.publishing.artifacts import ROOT, files

DIGEST = "sha256:" + 64 * "a"


def test_each_image_has_an_sbom_with_what_the_dockerfile_installs(tmp_path: Path) -> None:
    found = {}
    for path in supply_chain.build_sboms(tmp_path):
        sbom = json.loads(path.read_text())
        assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.5")
        found[path.name] = {one["name"]: one for one in sbom["components"]}
    operator, sidecar, worker = (
        found[f"distributed-input-{image}.cdx.json"] for image in ("operator", "sidecar", "worker")
    )
    assert "kopf" in operator
    assert {"grpcio", "click", "psutil"} <= set(sidecar)
    assert not {"kopf", "tensorflow", "tensorflow-cpu"} & set(sidecar)
    assert {"tensorflow", "tensorflow-cpu"} & set(worker)
    assert set(sidecar) <= set(worker)
    assert not {"pytest", "mypy"} & {*operator, *worker}
    assert sidecar["grpcio"]["purl"].startswith("pkg:pypi/grpcio@")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    supply_chain.build_sboms(tmp_path)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_the_provenance_has_each_artefact_and_the_commit(tmp_path: Path) -> None:
    wheel = tmp_path / "some-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    for _ in range(2):  # A second build does not name the first one's provenance.
        path = supply_chain.build_provenance(tmp_path, "1.2.3")
    statement = json.loads(path.read_text())
    digest = hashlib.sha256(b"wheel").hexdigest()
    assert statement["subject"] == [{"name": wheel.name, "digest": {"sha256": digest}}]
    definition = statement["predicate"]["buildDefinition"]
    head = subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True, text=True)
    source, lock, *_ = definition["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": head.stdout.strip()}
    assert lock["digest"]["sha256"] == hashlib.sha256((ROOT / "uv.lock").read_bytes()).hexdigest()
    assert path in files(tmp_path), "the checksums, which are signed, include it"


def test_the_base_image_gets_the_digest_of_its_tag(tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    with servers.oci_registry() as registry:
        image = f"{registry}/base:1"
        layer = tmp_path / "layer.tar"
        subprocess.run(("tar", "-cf", layer, "--files-from", "/dev/null"), check=True)
        push = (binary("crane"), "append", "--new_layer", layer, "--new_tag", image)
        subprocess.run(push, check=True, capture_output=True)
        dockerfile.write_text(f"# Some\nARG BASE_IMAGE={image}@{DIGEST}\nFROM ${{BASE_IMAGE}}\n")
        written = base_image.update(dockerfile)
        tag, _, digest = written.partition("@")
        assert tag == image
        assert digest.startswith("sha256:")
        assert digest != DIGEST
        assert dockerfile.read_text().splitlines()[1] == f"ARG BASE_IMAGE={written}"
    before = dockerfile.read_text()
    with pytest.raises(subprocess.CalledProcessError):
        base_image.update(dockerfile)
    assert dockerfile.read_text() == before


def test_the_dockerfile_has_a_base_image_that_can_be_pinned() -> None:
    text = (ROOT / "Dockerfile").read_text()
    written = base_image.pinned(text, DIGEST)
    assert supply_chain.base_image(written).endswith(f"@{DIGEST}")
    assert base_image.pinned(written, DIGEST) == written


class Database(BaseHTTPRequestHandler):
    """The part of OSV's API that uv uses. The class attribute names a vulnerable package."""

    vulnerable = ""

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        known = [{"id": "TEST-1", "modified": "2026-01-01T00:00:00Z"}]
        bad = [one["package"]["name"] == self.vulnerable for one in queries]
        self._reply({"results": [{"vulns": known} if one else {} for one in bad]})

    def do_GET(self) -> None:
        package = {"ecosystem": "PyPI", "name": self.vulnerable}
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]
        affected = [{"package": package, "ranges": ranges}]
        entry = {"id": "TEST-1", "modified": "2026-01-01T00:00:00Z", "affected": affected}
        self._reply(entry)

    def _reply(self, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def database(vulnerable: str) -> Iterator[str]:
    handler = type("Handler", (Database,), {"vulnerable": vulnerable})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize(("vulnerable", "status"), [("", 0), ("numpy", 1)])
def test_vulnerabilities_of_the_lock_file_are_found(
    vulnerable: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with database(vulnerable) as url:
        assert vulnerabilities.search(url) == status
    assert ("TEST-1" in capfd.readouterr().out) is bool(status)


def test_a_database_without_an_answer_is_not_a_success(capfd: pytest.CaptureFixture[str]) -> None:
    with database("") as url:
        pass  # The port is closed now.
    assert vulnerabilities.search(url) == vulnerabilities.UNREACHABLE
    assert "vulnerabilities: NOT CHECKED: no answer from http://127.0.0.1" in capfd.readouterr().err
