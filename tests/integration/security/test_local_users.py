"""`distributed-input run`: what another user of the machine reaches of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.runner import process_wrapper
from distributed_input.runtime import addresses
from testing.integration.run_supervision.harness import (
    WITH_REAL_PARTS,
    Run,
    run_starter,
    write_line,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes in /proc")

INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: train}
spec:
  dataset:
    type: EntryPoint
    entryPoint: {function: "numbers_of:dataset_fn", source: {type: Path, path: .}}
  batching: {globalBatchSize: 8}
  workers: {replicas: 2}
  sidecar: {buffer: 1Mi}
"""
DATASET = """
import tensorflow as tf

def dataset_fn(ctx):
    return tf.data.Dataset.range(640).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
"""
TRAINER = """
import distributed_input as di

with di.connect("train", timeout=60) as train:
    rows = [row for batch in train.numpy() for row in batch.tolist()]
    print(sorted(rows) == list(range(640)), flush=True)
    input()
"""
OTHER_USER = 65534
# Tries to connect to each socket and to open each file, as another user if its id is given. Prints
# what it reached.
ATTEMPTS = """
import json, os, socket, sys
for user in map(int, sys.argv[1:]):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
reached = []
for kind, path in json.load(sys.stdin):
    try:
        if kind == "file":
            open(path, "rb").read(1)
        else:
            with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as one:
                one.connect(path)
        reached.append(path)
    except PermissionError:
        pass
print(json.dumps(reached))
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Return a folder that all users may read, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        (path / "numbers_of.py").write_text(DATASET)
        yield path


@pytest.fixture(scope="module")
def run(home: Path) -> Iterator[Run]:
    """Yield a run whose trainer has read all rows, and waits."""
    pytest.importorskip("tensorflow")
    starter = run_starter(home)
    try:
        started = next(starter)(
            [sys.executable, "-c", TRAINER], file=INPUT, program=WITH_REAL_PARTS
        )
        started.out.wait_for("True")
        yield started
        write_line(started, "end")
        assert started.wait() == 0
    finally:
        next(starter, None)


Attempt = tuple[str, str]
"""Kind and path of a socket, or "file" and the path of a file."""


def private_sockets(run: Run) -> list[Attempt]:
    parts = ("dispatcher", "worker-0", "worker-1")
    paths = [addresses.unix_path(str(run.ready(part)["address"])) for part in parts]
    paths += [f"{path}.rows" for path in paths[1:]]
    found = [("SOCK_STREAM", path) for path in paths]
    return found + [("SOCK_SEQPACKET", str(path)) for path in shared(run).rglob("*.sock")]


def private_files(run: Run) -> list[Attempt]:
    folders = (run.folder, shared(run))
    return [("file", str(one)) for at in folders for one in at.rglob("*") if is_file(one)]


def shared(run: Run) -> Path:
    """Return the folder with the sockets and buffers of the run."""
    return Path(addresses.unix_path(str(run.ready("dispatcher")["address"]))).parents[1]


def test_a_run_has_no_port_and_its_sockets_and_files_are_in_private_folders(
    run: Run, home: Path
) -> None:
    """Only the owner, and the administrator, may use a folder with mode 0700."""
    pids = [pid for pid, _ in process_wrapper.marked(process_wrapper.mark(run.name, ""))]
    listening = [one for pid in pids for one in sockets_of(pid)]
    # An abstract socket and a port have no owner: every user may connect.
    assert [one for one in listening if one.startswith(("tcp", "@"))] == []
    assert {path for _, path in private_sockets(run)} == set(listening)
    files = private_files(run)
    assert {"train", "dispatcher.ready", "dispatcher.log"} <= {Path(one).name for _, one in files}
    folders = (run.folder, shared(run))
    assert [(stat.S_IMODE(one.stat().st_mode), one.stat().st_uid) for one in folders] == [
        (0o700, os.getuid())
    ] * 2
    attempts = [*private_sockets(run), *files]
    assert all(any(Path(path).is_relative_to(one) for one in folders) for _, path in attempts)
    everything = [*attempts, ("file", str(home / "numbers_of.py"))]
    assert reached(everything) == [path for _, path in everything]


@pytest.mark.skipif(os.getuid() != 0, reason="starts a process of another user")
def test_another_user_reaches_no_socket_and_no_file_of_a_run(run: Run, home: Path) -> None:
    public = str(home / "numbers_of.py")
    attempts = [*private_sockets(run), *private_files(run), ("file", public)]
    assert len(attempts) > 10
    assert reached(attempts, OTHER_USER) == [public]


def reached(attempts: list[Attempt], *user: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-S", "-c", ATTEMPTS, *map(str, user)],
        input=json.dumps(attempts),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return list(json.loads(done.stdout))


def is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def sockets_of(pid: int) -> list[str]:
    """Return the sockets on which a process listens: paths, @abstract names, and tcp ports."""
    inodes = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(one)):
                inodes.add(found[1])
    result = []
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        words = line.split(maxsplit=7)
        listens = int(words[3], 16) & 0x10000  # __SO_ACCEPTCON
        if words[6] in inodes and listens:
            result.append(words[7])
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in inodes and words[3] == "0A":  # LISTEN
                result.append(f"{table}:{int(words[1].rpartition(':')[2], 16)}")
    return result


def test_the_helper_sees_every_kind_of_socket(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind(f"\0{tmp_path.name}-{os.getpid()}")
        abstract.listen()
        found = sockets_of(os.getpid())
        assert f"tcp:{tcp.getsockname()[1]}" in found
        assert f"@{tmp_path.name}-{os.getpid()}" in found
