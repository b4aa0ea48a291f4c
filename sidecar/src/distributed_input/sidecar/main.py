"""The sidecar's process: its flags, and its life from start to SIGTERM."""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Sequence
from pathlib import Path

from distributed_input.api import flags
from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError
from distributed_input.api.files import DATASET_PREFIX, RUN_DIR, SLOTS_PREFIX, SOCKET_NAME
from distributed_input.link.credentials import Credentials
from distributed_input.link.tls_credentials import credentials_of
from distributed_input.runtime import args as common
from distributed_input.runtime import heap, logs, ready, shutdown
from distributed_input.runtime.exposition import Exposition
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.server import SidecarServer

_log = logs.get("sidecar.main")
_COLLECT_SECONDS = 60.0


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("sidecar", "Fetch a trainer's share of its inputs into shared memory.")
    parser.add_argument(
        flags.DISPATCHER,
        action="append",
        required=True,
        metavar="[INPUT=]HOST:PORT",
        help="Address of the dispatcher of an input. Repeat it for each input if there are several",
    )
    parser.add_argument(
        flags.CONFIG,
        action="append",
        required=True,
        metavar="FILE",
        help='JSON file with inputs: {"inputs": {NAME: SPEC}}. Repeat it for inputs in other files',
    )
    parser.add_argument(
        flags.DIR,
        default=RUN_DIR,
        help="Folder shared with trainers. Default: %(default)s",
    )
    parser.add_argument(
        flags.CONSUMER_INDEX,
        type=int,
        default=0,
        help="Index of this trainer among those that share its inputs. Default: %(default)s",
    )
    parser.add_argument(
        flags.CONSUMER_COUNT,
        type=int,
        default=1,
        help="Number of trainers. Default: %(default)s",
    )
    parser.add_argument(
        flags.RANKS_PER_TRAINER,
        default="1",
        help="Number of processes of this trainer that read, each a consumer of its own, or 1/N if "
        "N trainers read the same rows. All trainers have the same number. Default: %(default)s",
    )
    parser.add_argument(
        flags.POD,
        default="",
        metavar="ID",
        help="Id of this pod. Workers with the same id are preferred to others. Default: no such "
        "worker",
    )
    return parser


def _read_configs(paths: Sequence[str]) -> dict[str, InputConfig]:
    """Return the configurations of the inputs in all files, by name."""
    inputs: dict[str, InputConfig] = {}
    for path in paths:
        found = _read_config(path)
        twice = sorted(found.keys() & inputs.keys())
        if twice:
            raise ConfigError(f"--config {path}: input {twice[0]} is in another file too")
        inputs |= found
    return inputs


def _read_config(path: str) -> dict[str, InputConfig]:
    try:
        inputs = json.loads(Path(path).read_text())["inputs"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f'--config {path}: not a file like {{"inputs": {{...}}}}: {error}'
        ) from error
    if not isinstance(inputs, dict) or not inputs:
        raise ConfigError(f"--config {path}: the file has no inputs")
    where = f"--config {path}: inputs"
    return {name: InputConfig.from_json(spec, f"{where}.{name}") for name, spec in inputs.items()}


def _dispatchers(values: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the address of each input's dispatcher, by name."""
    addresses = {}
    for value in values:
        name, _, address = value.rpartition("=")
        if not name and len(names) > 1:
            raise ConfigError(f"--dispatcher {value}: with several inputs, use INPUT=HOST:PORT")
        addresses[name or names[0]] = address
    missing = [name for name in names if name not in addresses]
    if missing:
        raise ConfigError(f"--dispatcher: the flag is missing for input {', '.join(missing)}")
    return addresses


def _credentials(tls_folder: str | None, token_file: str | None, name: str) -> Credentials:
    """Return an input's credentials.

    They come from the folder `name` with certificates, or else from the token file, or from the
    file `name` if that is a folder.

    Raises:
        ConfigError: the token is not valid, or there is a folder with certificates, and it has
            neither a certificate of this input, nor is there a token.
        UnavailableError: the certificate is not usable.
    """
    if tls_folder and (Path(tls_folder) / name).is_dir():
        return credentials_of(Path(tls_folder) / name, None, os.environ)
    if token_file and Path(token_file).is_dir():
        token_file = str(Path(token_file) / name)
    found = credentials_of(None, token_file, os.environ)
    if tls_folder and not found.required:
        raise ConfigError(
            f"--tls-dir {tls_folder}: it has no folder {name}, and input {name} has no token: its "
            "calls would neither be encrypted nor authorized"
        )
    return found


def _available_bytes(limit: int | None, buffers: Sequence[int]) -> int | None:
    """Return the memory for each consumer besides its buffer, or None without a limit."""
    return None if limit is None else (limit - sum(buffers)) // len(buffers)


def _registry(args: argparse.Namespace, folder: Path) -> InputRegistry:
    """Create the inputs, after removing the files of an earlier container from the folder."""
    ranks = TrainerRanks.of(args.consumer_index, args.consumer_count, args.ranks_per_trainer)
    specs = _read_configs(args.config)
    dispatchers = _dispatchers(args.dispatcher, list(specs))
    # A dataset file is left behind if the container stopped before it read the file.
    for stale in (*folder.glob(f"{SLOTS_PREFIX}*"), *folder.glob(f"{DATASET_PREFIX}*")):
        stale.unlink(missing_ok=True)

    limit = heap.memory_limit()
    buffers = [spec.sidecar.buffer_bytes for spec in specs.values()]
    available = _available_bytes(limit, buffers * ranks.each)

    def create(name: str, job: str, rank: int) -> JobInput:
        return JobInput(
            name,
            specs[name],
            dispatchers[name],
            _credentials(args.tls_dir, args.token_file, name),
            folder,
            ranks,
            rank,
            job,
            available,
            args.pod,
        )

    return InputRegistry(create, list(specs), limit, ranks)


def _wait(stopping: shutdown.Shutdown) -> None:
    """Wait for the request to stop. Meanwhile, free the objects of ended sessions.

    These objects refer to each other. Few other objects are created, so that Python's garbage
    collector would seldom run.
    """
    while not stopping.wait(_COLLECT_SECONDS):
        gc.collect()


def _body(argv: Sequence[str] | None) -> int:
    args = common.parse("sidecar", _parser(), argv)
    heap.keep_freed_memory(arenas=2)  # an arena for each of dozens of streams used 50 MB more
    shutdown.die_with_parent(os.environ)
    stopping = shutdown.Shutdown(args.grace_seconds)
    stopping.install()
    folder = Path(args.dir)
    folder.mkdir(parents=True, exist_ok=True)
    registry = _registry(args, folder)
    server = SidecarServer(registry, folder)
    exposition = Exposition()
    exposition.add_source(server.samples)
    scraped = exposition.serve(args.metrics_listen, lambda: server.is_healthy)
    server.start()
    gc.collect()
    gc.freeze()  # objects that exist now stay: later collections need not scan them
    address = scraped.address if scraped else None
    ready.write(args.ready_file, str(folder / SOCKET_NAME), address)
    _log.info("serving", folder=str(folder), inputs=registry.names)
    _wait(stopping)
    server.close()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sidecar until SIGTERM. Return the exit status."""
    return common.exit_code("sidecar", _body, argv)
