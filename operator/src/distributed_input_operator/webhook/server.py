"""The HTTPS server of the webhook.

The API server calls it before it creates a pod.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
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


class Webhook:
    """The running server and its certificate. Call `start` to create it."""

    def __init__(
        self, runner: web.AppRunner, rotation: asyncio.Task[None], ready: asyncio.Event
    ) -> None:
        self._runner = runner
        self._rotation = rotation
        self._ready = ready

    @property
    def serving(self) -> bool:
        """Whether the server has a certificate. Without one, TLS handshakes fail."""
        return self._ready.is_set()

    @property
    def trouble(self) -> str:
        """Why the process must restart, or "" if it is healthy."""
        return "the webhook's certificate rotation has stopped" if self._rotation.done() else ""

    async def stop(self) -> None:
        """Respond to pending requests, then stop."""
        self._rotation.cancel()
        await self._runner.cleanup()


async def start(api: Api, namespace: str, args: argparse.Namespace) -> Webhook:
    """Start the webhook as the flags say.

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
        certificate = SecretCertificate(
            api,
            namespace,
            context,
            secret=args.webhook_secret,
            configuration=args.webhook_configuration,
        )
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
    return Webhook(runner, rotation, ready)


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
