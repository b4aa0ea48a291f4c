"""Servers of object storage on this machine: S3 (versitygw) and Google Cloud Storage.

A bucket is a folder, and an object is a file.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distributed_input.runtime.addresses import free_ports
from testing.cluster.binaries import binary

ACCESS_KEY, SECRET_KEY = "test-access", "test-secret"
_READY_SECONDS = 30.0


@dataclass(frozen=True)
class ObjectStorage:
    """A server.

    Attributes:
        scheme: of URLs, s3 or gs.
        address: host:port.
        buckets: folder with a folder for each bucket.
    """

    scheme: str
    address: str
    buckets: Path

    def environment(self, address: str = "") -> dict[str, str]:
        """Return a client's environment: the address (default: the server's) and credentials."""
        endpoint = f"http://{address or self.address}"
        if self.scheme == "gs":
            return {"CLOUD_STORAGE_EMULATOR_ENDPOINT": endpoint}
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[ObjectStorage]:
    """Serve the folders in `folder` as S3 buckets. Requests need the credentials above."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    keys = ["--access", ACCESS_KEY, "--secret", SECRET_KEY]
    command = [str(binary("versitygw")), "--port", address, *keys, "--quiet"]
    with _serving([*command, "posix", "--nometa", str(folder)], address):
        yield ObjectStorage("s3", address, folder)


@contextlib.contextmanager
def gcs(folder: Path) -> Iterator[ObjectStorage]:
    """Serve the folders in `folder` as buckets of Google Cloud Storage. Checks no credentials.

    The server reads them once, at its start.
    """
    host, (port,) = "127.0.0.1", free_ports(1)
    command = [str(binary("fake-gcs-server")), "-scheme", "http", "-host", host, "-port", f"{port}"]
    command += ["-public-host", f"{host}:{port}", "-backend", "memory"]
    with _serving([*command, "-data", str(folder), "-log-level", "warn"], f"{host}:{port}"):
        yield ObjectStorage("gs", f"{host}:{port}", folder)


@contextlib.contextmanager
def _serving(command: Sequence[str], address: str) -> Iterator[None]:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        _wait_listening(server, address)
        yield
    finally:
        server.terminate()
        server.wait(30)


def _wait_listening(server: subprocess.Popen[bytes], address: str) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            with socket.create_connection((host, int(port)), 1):
                return
        except OSError:
            assert server.poll() is None, f"{server.args!r} ended with {server.returncode}"
            assert time.monotonic() < deadline, f"{server.args!r} does not listen"
            time.sleep(0.02)
