"""The HTTPS server of the webhook, which the API server calls before it creates a pod.

Every replica of the operator runs it, also without the leader's lease.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
from pathlib import Path

from aiohttp import web

from distributed_input.api import names
from distributed_input_operator import metrics
from distributed_input_operator.kube.api import Api
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.webhook import certificates
from distributed_input_operator.webhook.admission import Injector
from distributed_input_operator.webhook.rotation import (
    ManagedCertificate,
    MountedCertificate,
    refresh_forever,
)

_MAX_REVIEW_BYTES = 8 << 20
"""Larger than any object that the API server accepts."""
OFF = "off"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the operator's flags for the webhook."""
    group = parser.add_argument_group("injection of sidecars")
    group.add_argument(
        "--webhook-listen",
        default=OFF,
        metavar="[HOST]:PORT|off",
        help="address of the webhook's HTTPS server (default: %(default)s)",
    )
    group.add_argument(
        "--webhook-host",
        action="append",
        metavar="NAME",
        help="DNS name under which the API server calls the webhook, SERVICE.NAMESPACE.svc; "
        "repeatable (default: none)",
    )
    group.add_argument(
        "--webhook-configuration",
        default=names.WEBHOOK_CONFIGURATION,
        metavar="NAME",
        help="MutatingWebhookConfiguration whose caBundle the operator updates "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--webhook-secret",
        default=names.WEBHOOK_SECRET,
        metavar="NAME",
        help="Secret that the operator stores its certificate in (default: %(default)s)",
    )
    group.add_argument(
        "--webhook-certificate",
        type=Path,
        metavar="FOLDER",
        help="folder with tls.crt and tls.key that another program renews, such as cert-manager "
        "(default: the operator generates a certificate)",
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


async def start(api: Api, namespace: str, args: argparse.Namespace) -> Webhook | None:
    """Start the webhook as the flags say, or return None if it is off.

    Args:
        api: client of the API server.
        namespace: the operator's namespace, which has the Secret.
        args: the flags of `add_flags`, and those of the default images.

    Raises:
        OSError: the port is not available.
    """
    if args.webhook_listen == OFF:
        return None
    context = certificates.server_context()
    certificate: ManagedCertificate | MountedCertificate
    if args.webhook_certificate:
        certificate = MountedCertificate(args.webhook_certificate, context)
    else:
        certificate = ManagedCertificate(
            api,
            namespace,
            args.webhook_host or [],
            context,
            secret=args.webhook_secret,
            configuration=args.webhook_configuration,
        )
    host, _, port = args.webhook_listen.rpartition(":")
    settings = Settings(args.worker_image, args.sidecar_image, pull_policy=args.image_pull_policy)
    runner = await _serve(Injector(api, settings), context, host, int(port))
    ready = asyncio.Event()
    rotation = asyncio.create_task(refresh_forever(certificate.refresh, ready))
    return Webhook(runner, rotation, ready)


async def _serve(
    injector: Injector, context: ssl.SSLContext, host: str, port: int
) -> web.AppRunner:
    async def review(request: web.Request) -> web.Response:
        body = await request.json()
        with metrics.INJECTION_SECONDS.time():
            response = await injector.respond(body["request"])
        metrics.INJECTIONS.labels("injected" if response["allowed"] else "refused").inc()
        head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**head, "response": response})

    app = web.Application(client_max_size=_MAX_REVIEW_BYTES)
    app.add_routes([web.post(names.WEBHOOK_PATH, review)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, host or None, port, ssl_context=context).start()
    return runner
