"""The sidecar's process: one socket for the trainers, one link per input."""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

from distributed_input.api import flags
from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError
from distributed_input.api.files import DATASET_PREFIX, RING_PREFIX, RUN_DIR, SOCKET_NAME
from distributed_input.runtime import args as common
from distributed_input.runtime import heap, logs, ready, shared_files, shutdown
from distributed_input.runtime.credentials import Credentials
from distributed_input.runtime.exposition import Exposition
from distributed_input.runtime.metrics import Sample
from distributed_input.sidecar.delivery.connection import Connection
from distributed_input.sidecar.input_registry import Served
from distributed_input.sidecar.inputs import Input
from distributed_input.sidecar.samples import samples

_log = logs.get("sidecar.main")


class Sidecar:
    """Accepts trainers on `folder`/sidecar.sock and serves `inputs` to them."""

    def __init__(self, inputs: Served, folder: Path, consumer: int, consumers: int) -> None:
        self._inputs = inputs
        self._consumer, self._consumers = consumer, consumers
        path = folder / SOCKET_NAME
        path.unlink(missing_ok=True)  # of an earlier life in the same volume
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(path))
        os.chmod(path, shared_files.mode(folder))
        self._socket.listen(16)
        self._path = path
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._inputs.start()
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """Whether it takes connections."""
        return self._thread.is_alive()

    def samples(self) -> list[Sample]:
        """The metrics."""
        return [sample for made in self._inputs.all() for sample in samples(made)]

    def close(self) -> None:
        """Stop serving; trainers get a retryable error."""
        self._path.unlink(missing_ok=True)
        self._socket.close()
        self._inputs.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return  # closed
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
            # A send that waits looks at its cancelled event this often; reads end with the peer.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(0.2))
            connection = Connection(sock, self._inputs.find, self._consumer, self._consumers)
            threading.Thread(target=connection.serve, name="connection", daemon=True).start()


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def _parser() -> argparse.ArgumentParser:
    made = common.parser("sidecar", "Fetches a trainer's share of its inputs into shared memory.")
    made.add_argument(
        flags.DISPATCHER,
        action="append",
        required=True,
        metavar="[INPUT=]HOST:PORT",
        help="dispatcher of an input; once for each input where there are several",
    )
    made.add_argument(
        flags.CONFIG,
        action="append",
        required=True,
        metavar="FILE",
        help='JSON: {"inputs": {NAME: SPEC}}; repeatable, for inputs in files of their own',
    )
    made.add_argument(flags.DIR, default=RUN_DIR, help="folder shared with trainers")
    made.add_argument(flags.CONSUMER_INDEX, type=int, default=0)
    made.add_argument(flags.CONSUMER_COUNT, type=int, default=1)
    return made


def _configs(paths: Sequence[str]) -> dict[str, InputConfig]:
    inputs: dict[str, InputConfig] = {}
    for path in paths:
        found = _config(path)
        twice = sorted(found.keys() & inputs.keys())
        if twice:
            raise ConfigError(f"--config {path}: input {twice[0]} is in another file too")
        inputs |= found
    return inputs


def _config(path: str) -> dict[str, InputConfig]:
    try:
        inputs = json.loads(Path(path).read_text())["inputs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'--config {path}: not a file like {{"inputs": {{...}}}}: {error}'
        ) from error
    if not isinstance(inputs, dict) or not inputs:
        raise ConfigError(f"--config {path}: names no inputs")
    where = f"--config {path}: inputs"
    return {name: InputConfig.from_json(spec, f"{where}.{name}") for name, spec in inputs.items()}


def _dispatchers(given: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    out = {}
    for item in given:
        name, _, address = item.rpartition("=")
        if not name and len(names) > 1:
            raise ConfigError(f"--dispatcher {item}: with several inputs say INPUT=HOST:PORT")
        out[name or names[0]] = address
    missing = [name for name in names if name not in out]
    if missing:
        raise ConfigError(f"--dispatcher: none given for input {', '.join(missing)}")
    return out


def _credentials(token_file: str | None, name: str) -> Credentials:
    """An input's token: from the file, or from the file of its name in the folder."""
    if token_file and Path(token_file).is_dir():
        token_file = str(Path(token_file) / name)
    return Credentials.from_args(token_file, os.environ)


def _inputs(args: argparse.Namespace, folder: Path) -> Served:
    consumer, consumers = args.consumer_index, args.consumer_count
    if not 0 <= consumer < consumers:
        raise ConfigError(f"--consumer-index {consumer}: must be from 0 to {consumers - 1}")
    specs = _configs(args.config)
    dispatchers = _dispatchers(args.dispatcher, list(specs))
    # Of an earlier life: a dataset, too, that its trainer had written and nobody has taken.
    for stale in (*folder.glob(f"{RING_PREFIX}*"), *folder.glob(f"{DATASET_PREFIX}*")):
        stale.unlink(missing_ok=True)

    def make(name: str, job: str) -> Input:
        credentials = _credentials(args.token_file, name)
        return Input(
            name, specs[name], dispatchers[name], credentials, folder, consumer, consumers, job
        )

    return Served(make, list(specs))


def _body(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    logs.setup("sidecar", args.log_level)
    heap.keep_freed_memory(arenas=2)  # one for each of dozens of streams took 50 MB more
    shutdown.die_with_parent(os.environ)
    stopping = shutdown.Shutdown(args.grace_seconds)
    stopping.install()
    folder = Path(args.dir)
    folder.mkdir(parents=True, exist_ok=True)
    inputs = _inputs(args, folder)
    sidecar = Sidecar(inputs, folder, args.consumer_index, args.consumer_count)
    exposed = Exposition()
    exposed.add_source(sidecar.samples)
    scraped = exposed.serve(args.metrics_listen, lambda: sidecar.healthy)
    sidecar.start()
    gc.collect()
    gc.freeze()  # what is there now stays: no use in looking through it again
    address = scraped.address if scraped else None
    ready.write(args.ready_file, str(folder / SOCKET_NAME), address)
    _log.info("serving", folder=str(folder), inputs=inputs.names)
    stopping.wait()
    sidecar.close()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sidecar until SIGTERM; the exit status."""
    return common.exit_code("sidecar", _body, argv)
