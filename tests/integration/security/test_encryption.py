"""What a packet capture shows of an input."""

from __future__ import annotations

import time
from typing import Any

import pytest

from testing.integration import capture, readers
from testing.integration.cluster import Cluster, spec
from testing.integration.datasets import marked
from testing.integration.tls_cluster import INPUT, TlsCluster
from testing.processes.forks import own_address

TOKEN = "a-token-that-is-on-no-wire"
ROWS, BATCH, REPEAT = 64, 16, 20
ROW_BYTES = ROWS * REPEAT * len(marked.MARK)
SECRETS = {"token": TOKEN.encode(), "row": marked.MARK, "dataset": b"marked:dataset_fn"}
GRPC, DIRECT = "GRPC", "Auto"
# Rows of a worker with a loopback address use shared memory, which no packet carries.
HOSTS = {GRPC: "127.0.0.1", DIRECT: own_address()}

pytestmark = [
    pytest.mark.skipif(not capture.is_possible(), reason="may not capture packets"),
    pytest.mark.skipif(not HOSTS[DIRECT], reason="the machine has no address but loopback"),
]


def marked_spec(transfer: str) -> Any:
    return spec(
        "marked:dataset_fn",
        {"rows": ROWS, "repeat": REPEAT},
        globalBatchSize=BATCH,
        partitions=2,
        sidecar={"buffer": "16Mi", "timeoutSeconds": 30, "transfer": transfer},
    )


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def captured(cluster: Cluster, transfer: str) -> set[str]:
    """Read some epochs, and return what a packet capture of all ports showed."""
    (worker,) = cluster.add_workers(1, "--listen", f"{HOSTS[transfer]}:0")
    port = port_of(worker.address)
    rows_port = port + 1 if transfer == DIRECT else port
    texts = SECRETS.values()
    with (
        capture.Capture({port_of(cluster.address), port, port + 1}, texts) as seen,
        capture.Capture({rows_port}, texts) as rows,
    ):
        (sidecar,) = cluster.add_sidecars({INPUT: marked_spec(transfer)})
        cluster.status()
        with readers.connect(sidecar, INPUT) as data:
            deadline = time.monotonic() + 30
            # The first blocks use gRPC, until there is a direct connection.
            while rows.bytes < ROW_BYTES:
                assert time.monotonic() < deadline, f"the rows did not use port {rows_port}"
                assert sorted(readers.ids(data.numpy())) == list(range(ROWS))
    return {kind for kind, text in SECRETS.items() if text in seen.seen}


@pytest.mark.parametrize("transfer", [GRPC, DIRECT])
def test_without_encryption_a_capture_shows_everything(transfer: str) -> None:
    """The test below would otherwise pass with a capture that sees nothing."""
    with Cluster(TOKEN) as cluster:
        assert captured(cluster, transfer) == set(SECRETS)


@pytest.mark.parametrize("transfer", [GRPC, DIRECT])
def test_with_encryption_a_capture_shows_nothing(transfer: str) -> None:
    with TlsCluster() as cluster:
        assert captured(cluster, transfer) == set()


def test_encryption_of_control_leaves_only_rows_readable() -> None:
    with TlsCluster(plain_transfer=True) as cluster:
        assert captured(cluster, DIRECT) == {"row"}
