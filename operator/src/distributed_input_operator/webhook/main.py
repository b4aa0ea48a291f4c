"""The webhook's process. It only reads from the API server, and needs no operator while it serves.

Nothing that a user's pods send to the operator reaches this process.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from kubernetes.aio.client import ApiClient

from distributed_input.api import names
from distributed_input_operator import health, process
from distributed_input_operator.kube.api import Api
from distributed_input_operator.webhook import server


def parser() -> argparse.ArgumentParser:
    """Return the parser of the flags."""
    created = argparse.ArgumentParser(
        prog=f"{names.OPERATOR}-webhook",
        description="Add sidecars to trainer pods.",
        allow_abbrev=False,
    )
    process.add_flags(created)
    server.add_flags(created)
    return created


async def _run(args: argparse.Namespace) -> int:
    await process.load_credentials()
    stopping = process.stop_event()
    async with (
        ApiClient() as client,
        server.running(Api(client), process.own_namespace(), args) as (rotation, ready),
    ):
        host, _, port = args.listen.rpartition(":")
        page = await health.serve(host, int(port), lambda: _trouble(rotation), ready.is_set)
        await stopping.wait()
    await page.cleanup()
    return 0


def _trouble(rotation: asyncio.Task[None]) -> str:
    """Return why the process must restart. Empty: it is healthy."""
    return "the webhook's certificate rotation has stopped" if rotation.done() else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until SIGTERM. Return the exit status."""
    args = parser().parse_args(argv)
    if message := process.missing_image(args):
        sys.stderr.write(f"{names.OPERATOR}-webhook: {message}\n")
        return 2
    process.set_up_logging(args.log_level)
    return asyncio.run(_run(args))
