"""The HTTPS server of the webhook.

The API server calls it before it creates a pod.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from distributed_input.api import names
from distributed_input_operator import metrics
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


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the server, without those that the operator has too."""
    parser.add_argument(
        "--webhook-listen",
        default=f":{names.WEBHOOK_PORT}",
        metavar="[HOST]:PORT",
        help="address of the HTTPS server (default: %(default)s)",
    )
    parser.add_argument(
        "--webhook-certificate",
        type=Path,
        metavar="FOLDER",
        help="folder with tls.crt and tls.key that another program renews, such as cert-manager "
        "(default: the certificate in the Secret)",
    )


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
        args: the flags of `add_flags`, and those of `process.add_flags`.

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
