"""What the processes of the controller and of the webhook share."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from kubernetes.aio.client import Configuration

from distributed_input_operator import process

ANY = process.resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 524_288), (65_536, 524_288)),
        ((1024, ANY), (65_536, ANY)),
        ((1024, 4096), (4096, 4096)),
        ((1_000_000, 1_000_000), None),
        ((ANY, ANY), None),
    ],
)
def test_the_limit_of_open_files_is_raised_but_never_lowered(monkeypatch, limits, raised):
    calls = []
    monkeypatch.setattr(process.resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(process.resource, "setrlimit", lambda _, now: calls.append(now))
    process.raise_file_limit()
    assert calls == ([raised] if raised else [])


def test_the_watches_take_no_connections_from_other_requests(monkeypatch):
    """An operator for many namespaces has eight watches for each of them."""

    def loaded() -> None:
        Configuration.set_default(Configuration(host="http://one"))

    monkeypatch.setattr(process.config, "load_incluster_config", loaded)
    try:
        asyncio.run(process.load_credentials())
        found = Configuration.get_default_copy()
        assert (found.host, found.connection_pool_maxsize) == ("http://one", 0)
    finally:
        Configuration.set_default(None)


STUBBORN = """
import asyncio
from distributed_input_operator import process

async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    return 3

process.run(main(), 0.1)
"""


def test_the_namespace_is_that_of_the_pod(monkeypatch, tmp_path):
    monkeypatch.setenv("POD_NAMESPACE", "mine")
    assert process.own_namespace() == "mine"
    monkeypatch.delenv("POD_NAMESPACE")
    file = tmp_path / "namespace"
    monkeypatch.setattr(process, "_OWN_NAMESPACE", file)
    assert process.own_namespace() == "default"
    file.write_text("theirs\n")
    assert process.own_namespace() == "theirs"


def test_a_process_ends_although_a_task_does_not():
    found = subprocess.run(
        [sys.executable, "-c", STUBBORN], timeout=120, check=False, capture_output=True, text=True
    )
    assert found.returncode == 3, "that of main"
    assert "tasks do not end: exiting without them" in found.stderr


@pytest.mark.parametrize("status", [0, 2])
def test_the_status_is_that_of_the_main_function(status):
    async def main() -> int:
        return status

    assert process.run(main(), 60.0) == status
