"""The webhook's process: an HTTPS server, which the API server calls before it creates a pod.

It only reads from the API server, and needs no operator while it serves. Nothing that a user's pods
send to the operator reaches this process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from aiohttp import web
from kubernetes.aio.client import ApiClient

from distributed_input.api import names
from distributed_input_operator import health, metrics, process
from distributed_input_operator.kube.api import Api
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.webhook import certificates
from distributed_input_operator.webhook.admission import Injector, deadline_seconds
from distributed_input_operator.webhook.rotation import (
    MountedCertificate,
    SecretCertificate,
    SharedObjects,
    refresh_forever,
)

_MAX_REVIEW_BYTES = 8 << 20
"""Larger than any object that the API server accepts."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the flags."""
    created = argparse.ArgumentParser(
        prog=f"{names.OPERATOR}-webhook",
        description="Add sidecars to trainer pods.",
        allow_abbrev=False,
    )
    process.add_flags(created)
    created.add_argument(
        "--webhook-listen",
        default=f":{names.WEBHOOK_PORT}",
        metavar="[HOST]:PORT",
        help="address of the HTTPS server (default: %(default)s)",
    )
    created.add_argument(
        "--webhook-certificate",
        type=Path,
        metavar="FOLDER",
        help="folder with tls.crt and tls.key that another program renews, such as cert-manager "
        "(default: the certificate in the Secret)",
    )

    return created


@contextlib.asynccontextmanager
async def running(
    api: Api, namespace: str, args: argparse.Namespace
) -> AsyncIterator[tuple[asyncio.Task[None], asyncio.Event]]:
    """Run the webhook as the flags say. At the end, respond to pending requests.

    Yields:
        The renewal of the certificate, which must not end, and an event that is set when the server
        has a certificate. Without one, TLS handshakes fail.

    Args:
        api: client of the API server.
        namespace: the namespace of the Secret.
        args: the flags.

    Raises:
        OSError: the port is not available.
    """
    context = certificates.server_context()
    certificate: SecretCertificate | MountedCertificate
    if args.webhook_certificate:
        certificate = MountedCertificate(args.webhook_certificate, context)
    else:
        objects = SharedObjects(api, namespace, args.webhook_secret, args.webhook_configuration)
        certificate = SecretCertificate(objects, context)
    host, _, port = args.webhook_listen.rpartition(":")
    settings = Settings(
        args.worker_image,
        args.sidecar_image,
        pull_policy=args.image_pull_policy,
        operator_class=args.operator_class,
    )
    app = _application(Injector(api, settings), certificate)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, host or None, int(port), ssl_context=context).start()
    ready = asyncio.Event()
    rotation = asyncio.create_task(refresh_forever(certificate.refresh, ready))
    yield rotation, ready
    rotation.cancel()
    await runner.cleanup()


def _application(
    injector: Injector, certificate: SecretCertificate | MountedCertificate
) -> web.Application:
    # Any pod can connect. Only the API server has the configuration with the path.
    async def review(request: web.Request) -> web.Response:
        last = request.match_info.get("last", "").encode()
        if not any(hmac.compare_digest(last, one.encode()) for one in certificate.paths):
            return web.Response(status=404)
        body = await request.json()
        with metrics.INJECTION_SECONDS.time():
            seconds = deadline_seconds(request.query.get("timeout"))
            response = await injector.respond(body["request"], seconds)
        metrics.INJECTIONS.labels("injected" if response["allowed"] else "refused").inc()
        head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**head, "response": response})

    app = web.Application(client_max_size=_MAX_REVIEW_BYTES)
    path = names.WEBHOOK_PATH
    app.add_routes([web.post(path, review), web.post(f"{path}/{{last}}", review)])
    return app


async def _run(args: argparse.Namespace) -> int:
    await process.load_credentials()
    stopping = process.stop_event()
    async with (
        ApiClient() as client,
        running(Api(client), process.own_namespace(), args) as (rotation, ready),
    ):
        host, _, port = args.listen.rpartition(":")

        def failure() -> str:
            return "the webhook's certificate rotation has stopped" if rotation.done() else ""

        page = await health.serve(host, int(port), failure, ready.is_set)
        await stopping.wait()
    await page.cleanup()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until SIGTERM. Return the exit status."""
    args = parser().parse_args(argv)
    if message := process.missing_image(args):
        sys.stderr.write(f"{names.OPERATOR}-webhook: {message}\n")
        return 2
    process.set_up_logging(args.log_level)
    return asyncio.run(_run(args))
