"""Argument lists, read back by the parsers of the processes."""

from __future__ import annotations

from distributed_input.api.flags import (
    DispatcherFlags,
    ProcessFlags,
    SidecarFlags,
    TfDataDispatcherFlags,
    TfDataWorkerFlags,
    WorkerFlags,
    dispatcher_arguments,
    sidecar_arguments,
    tf_data_dispatcher_arguments,
    tf_data_worker_arguments,
    worker_arguments,
)
from distributed_input.dispatcher import main as dispatcher
from distributed_input.sidecar import main as sidecar
from distributed_input.tf_data_service import main as tf_data_service
from distributed_input.worker import main as worker

PROCESS = ProcessFlags("/token", "/ready", ":9090", 2.5, "/tls")


def test_the_dispatcher_reads_its_arguments() -> None:
    read = dispatcher._parser().parse_args(dispatcher_arguments(DispatcherFlags(":7070", PROCESS)))
    assert (read.listen, read.token_file, read.ready_file) == (":7070", "/token", "/ready")
    assert (read.metrics_listen, read.grace_seconds, read.tls_dir) == (":9090", 2.5, "/tls")


def test_the_worker_reads_its_arguments() -> None:
    flags = WorkerFlags(
        ":1", "d:2", "w:1", 3, 4, "/code", True, True, "/states", "p", PROCESS, True
    )
    read = worker._parser().parse_args(worker_arguments(flags))
    assert (read.listen, read.dispatcher, read.advertise) == (":1", "d:2", "w:1")
    assert (read.parallelism, read.share_bytes, read.path) == (3, 4, ["/code"])
    assert read.relaxed
    assert read.idle_cpus
    assert read.state_dir == "/states"
    assert read.pod == "p"
    assert (read.token_file, read.grace_seconds) == ("/token", 2.5)
    assert (read.tls_dir, read.plain_transfer) == ("/tls", True)


def test_absent_values_add_no_flag() -> None:
    assert worker_arguments(WorkerFlags(":1", "d:2")) == ["--listen", ":1", "--dispatcher", "d:2"]


def test_the_sidecar_reads_its_arguments() -> None:
    flags = SidecarFlags(["/a", "/b"], ["a=h:1", "b=h:2"], "/run", "1", "4", "p", PROCESS)
    read = sidecar._parser().parse_args(sidecar_arguments(flags))
    assert (read.config, read.dispatcher) == (["/a", "/b"], ["a=h:1", "b=h:2"])
    assert (read.dir, read.consumer_index, read.consumer_count) == ("/run", 1, 4)
    assert read.pod == "p"
    assert read.tls_dir == "/tls"
    assert (read.token_file, read.ready_file, read.grace_seconds) == ("/token", "/ready", 2.5)


def test_one_configuration_file_may_serve_several_dispatchers() -> None:
    flags = SidecarFlags(["/a"], ["a=h:1", "b=h:2"], "/run", "0", "1")
    read = sidecar._parser().parse_args(sidecar_arguments(flags))
    assert (read.config, read.dispatcher) == (["/a"], ["a=h:1", "b=h:2"])


def test_the_tf_data_service_reads_its_arguments() -> None:
    parser = tf_data_service._parser()
    flags = TfDataDispatcherFlags(7080, "/journal", "dns:a:1:2", "/ready")
    read = parser.parse_args(tf_data_dispatcher_arguments(flags))
    assert (read.part, read.port, read.work_dir) == ("dispatcher", 7080, "/journal")
    assert (read.static_workers, read.ready_file) == ("dns:a:1:2", "/ready")
    served = TfDataWorkerFlags("d:7080", 7081, "w:7081", 9, "/code")
    read = parser.parse_args(tf_data_worker_arguments(served))
    assert (read.part, read.dispatcher, read.port) == ("worker", "d:7080", 7081)
    assert (read.advertise, read.cache_bytes, read.path) == ("w:7081", 9, ["/code"])
