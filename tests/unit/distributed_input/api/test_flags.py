"""Argument lists, read back by the parsers of the processes."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.flags import arguments
from distributed_input.dispatcher import main as dispatcher
from distributed_input.sidecar import main as sidecar
from distributed_input.tf_data_service import main as tf_data_service
from distributed_input.worker import main as worker

PROCESS = {"token_file": "/token", "tls_dir": "/tls", "ready_file": "/ready", "grace_seconds": 2.5}
PARSERS = {
    "dispatcher": dispatcher._parser(),
    "worker": worker._parser(),
    "sidecar": sidecar._parser(),
    "tf.data": tf_data_service._parser(),
}


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        ("dispatcher", {"listen": ":7070", "metrics_listen": ":9090", **PROCESS}),
        (
            "worker",
            {
                "listen": ":1",
                "dispatcher": "d:2",
                "advertise": "w:1",
                "parallelism": 3,
                "share_bytes": 4,
                "relaxed": True,
                "idle_cpus": True,
                "state_dir": "/states",
                "store_dir": "/store",
                "store_bytes": 5,
                "modules": "a.b,c",
                "pod": "p",
                "plain_transfer": True,
                **PROCESS,
            },
        ),
        (
            "sidecar",
            {
                "config": ["/a", "/b"],
                "dispatcher": ["a=h:1", "b=h:2"],
                "dir": "/run",
                "consumer_index": 1,
                "consumer_count": 4,
                "pod": "p",
                **PROCESS,
            },
        ),
    ],
)
def test_a_process_reads_its_arguments(part: str, settings: dict[str, Any]) -> None:
    read = vars(PARSERS[part].parse_args(arguments(**settings)))
    assert {name: read[name] for name in settings} == settings


def test_the_tf_data_service_reads_its_arguments() -> None:
    parse = PARSERS["tf.data"].parse_args
    settings: dict[str, Any] = {"port": 7080, "work_dir": "/journal", "static_workers": "dns:a:1:2"}
    read = parse(["dispatcher", *arguments(**settings, ready_file="/ready")])
    assert (read.part, read.port, read.work_dir) == ("dispatcher", 7080, "/journal")
    assert (read.static_workers, read.ready_file) == ("dns:a:1:2", "/ready")
    settings = {"dispatcher": "d:7080", "port": 7081, "advertise": "w:7081", "cache_bytes": 9}
    read = parse(["worker", *arguments(**settings, path="/code")])
    assert (read.part, read.dispatcher, read.port) == ("worker", "d:7080", 7081)
    assert (read.advertise, read.cache_bytes, read.path) == ("w:7081", 9, ["/code"])


def test_absent_values_add_no_flag() -> None:
    absent = arguments(path=None, modules="", relaxed=False, dispatcher=[])
    assert (absent, arguments(grace_seconds=5.0)) == ([], ["--grace-seconds", "5"])
