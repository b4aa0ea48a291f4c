"""The dispatchers that commands ask: in a cluster, by address, or on this machine."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from distributed_input.api.environment import TOKEN_ENV
from distributed_input.api.errors import ConfigError
from distributed_input.link.credentials import Credentials
from distributed_input.link.tls_credentials import credentials_of
from distributed_input.runner import folders, kubectl
from distributed_input.runner.command_line import POSITIVE_SECONDS, argument, namespace
from distributed_input.runner.display.stats import StatusSample
from distributed_input.runner.display.status_client import StatusClient
from distributed_input.runner.folders import RunFolders
from distributed_input.runtime import addresses


@dataclass(frozen=True)
class FoundDispatcher:
    """The dispatcher of one input."""

    name: str
    """Name of the input; empty: unknown."""
    client: StatusClient
    problems: tuple[str, ...] = ()
    """What the operator reports about the input, if it is in a cluster."""
    address: str = ""
    """Address of the dispatcher; empty: a port is forwarded to it, which differs each time."""
    place: str = ""
    """Process and folder of its run, if it is on this machine. Empty: it is not, or is unknown."""

    @property
    def title(self) -> str:
        """The input, and the run that has it: other runs may have an input of this name."""
        return f"{self.name or 'input'} ({self.place})" if self.place else self.name or "input"

    def json_line(self, values: Mapping[str, Any]) -> str:
        """Return values about the input as one line of JSON, with its name and its run."""
        return f"{json.dumps({'input': self.name or None, 'run': self.place or None, **values})}\n"


Samples = tuple[FoundDispatcher, StatusSample, StatusSample]
"""A dispatcher, and its status at the start and at the end of an interval."""


def intervals(
    found: Sequence[FoundDispatcher], timeout: float, seconds: float
) -> Iterator[tuple[float, list[Samples]]]:
    """Yield the length of an interval, about `seconds`, and its samples, again and again."""
    before, began = [one.client.status(timeout) for one in found], time.monotonic()
    while True:
        time.sleep(seconds)
        after, now = [one.client.status(timeout) for one in found], time.monotonic()
        yield now - began, list(zip(found, before, after, strict=True))
        before, began = after, now


def printed(found: Sequence[tuple[FoundDispatcher, Mapping[str, Any], str]], output: str) -> str:
    """Return what a command prints about inputs: their JSON values, or their texts."""
    if output == "json":
        return "".join(one.json_line(values) for one, values, _ in found)
    return "\n".join(f"{one.title}:\n" * (len(found) > 1) + text for one, _, text in found)


@dataclass(frozen=True)
class Selection:
    """The dispatchers that flags select: those of the runs on this machine, unless one is named."""

    name: str | None = None
    """Name of an input of a run on this machine, or else in the cluster."""
    namespace: str | None = None
    dispatcher: str | None = None
    """Address of a dispatcher."""
    token_file: str | None = None
    timeout: float = 5.0
    """Seconds to wait for each response."""


def flags(function: Callable[..., int]) -> Callable[..., int]:
    """Add the flags that select dispatchers. The function gets a `Selection` first."""

    @functools.wraps(function)
    def wrapped(**given: Any) -> int:
        selected = {one.name: given.pop(one.name) for one in fields(Selection)}
        return function(Selection(**selected), **given)

    for decorate in (
        click.option(
            "--timeout", type=POSITIVE_SECONDS, default=5, help="Time limit for the response."
        ),
        click.option(
            "--token-file",
            metavar="FILE",
            help=f"File with the input's token, for --dispatcher. Default: variable {TOKEN_ENV}.",
        ),
        click.option(
            "--dispatcher", metavar="HOST:PORT", help="Address of a dispatcher, in place of NAME."
        ),
        namespace("Namespace of NAME in the cluster."),
        argument(
            "name",
            required=False,
            help="Name of an input of a run on this machine (`distributed-input run` and "
            "`distributed_input.local`), or else in the cluster of the kubeconfig, with kubectl. "
            "Default: all inputs of the runs on this machine.",
        ),
    ):
        wrapped = decorate(wrapped)
    return wrapped


@contextlib.contextmanager
def opened(options: Selection, env: Mapping[str, str]) -> Iterator[list[FoundDispatcher]]:
    """Yield a client for each dispatcher that the flags select, at least one.

    Raises:
        ConfigError: a flag is invalid, or the input or run is not found.
        UnavailableError: a dispatcher in the cluster cannot be reached.
    """
    check(options)
    with contextlib.ExitStack() as stack:
        runs = [] if options.namespace or options.dispatcher else local_runs(env, options.name)
        if options.name and not runs:
            one = stack.enter_context(
                kubectl.forwarded(options.name, options.namespace, options.timeout)
            )
            credentials = credentials_of(one.tls_folder, None, {TOKEN_ENV: one.token})
            client = StatusClient(one.address, credentials)
            found = [FoundDispatcher(options.name, client, one.problems)]
        elif options.dispatcher:
            addresses.check(options.dispatcher, "--dispatcher")
            credentials = Credentials.from_args(options.token_file, env)
            client = StatusClient(options.dispatcher, credentials)
            found = [FoundDispatcher("", client, address=options.dispatcher)]
        else:
            all_found = [one for run in runs for one in _of_run(run)]
            found = [one for one in all_found if options.name in (None, one.name)]
            if not found:
                raise ConfigError(
                    f"no run has started its dispatcher below {folders.default_parent(env)}: start "
                    "`distributed-input run`, or set --dispatcher"
                )
        for each in found:
            stack.callback(each.client.close)
        yield found


def check(options: Selection) -> None:
    """Raise ConfigError if the flags contradict each other."""
    if options.name and options.dispatcher:
        raise ConfigError("NAME and --dispatcher exclude each other: remove one of them")
    if options.namespace and not options.name:
        raise ConfigError("--namespace: set NAME too")
    if options.token_file and not options.dispatcher:
        raise ConfigError("--token-file: set --dispatcher too")


def local_runs(env: Mapping[str, str], name: str | None = None) -> list[RunFolders]:
    """Return the folders of the runs on this machine, or only of those with an input `name`."""
    runs = folders.live(folders.default_parent(env))
    return [run for run in runs if name is None or run.token(name).exists()]


def _of_run(run: RunFolders) -> Iterator[FoundDispatcher]:
    """Yield the dispatchers of one run that are ready."""
    tokens: list[Path] = []
    with contextlib.suppress(OSError):  # the run starts or ends now
        tokens = sorted(run.tokens.iterdir())
    for token in tokens:
        for process in ("dispatcher", f"{token.name}-dispatcher"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                address = json.loads(run.ready(process).read_text())["address"]
                # Not the file: it ends with the run, and a reader would warn that it is missing.
                credentials = Credentials.from_args(None, {TOKEN_ENV: token.read_text()})
                client = StatusClient(address, credentials, is_local=True)
                yield FoundDispatcher(token.name, client, address=address, place=run.place)
