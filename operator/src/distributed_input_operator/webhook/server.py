"""The injection webhook: an HTTPS server that the API server asks before it creates a pod.

Every replica serves it, leader or not.
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
from distributed_input_operator.webhook import certificates, rotation
from distributed_input_operator.webhook.admission import Injector

_REVIEW_BYTES = 8 << 20
"""The API server itself takes no larger objects."""
OFF = "off"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The operator's flags that are about the webhook."""
    made = parser.add_argument_group("injection of sidecars")
    made.add_argument(
        "--webhook-listen",
        default=OFF,
        metavar="[HOST]:PORT|off",
        help="where to serve the webhook over HTTPS (default: off)",
    )
    made.add_argument(
        "--webhook-host",
        action="append",
        metavar="NAME",
        help="what the API server calls it, SERVICE.NAMESPACE.svc; repeatable",
    )
    made.add_argument(
        "--webhook-configuration",
        default=names.WEBHOOK_CONFIGURATION,
        metavar="NAME",
        help="the MutatingWebhookConfiguration whose caBundle is kept (default: %(default)s)",
    )
    made.add_argument(
        "--webhook-secret",
        default=names.WEBHOOK_SECRET,
        metavar="NAME",
        help="the Secret that keeps the certificate (default: %(default)s)",
    )
    made.add_argument(
        "--webhook-certificate",
        type=Path,
        metavar="FOLDER",
        help="a folder with tls.crt and tls.key that someone else keeps, cert-manager say: none "
        "are made then",
    )


class Webhook:
    """The server, and its certificate. Use `start`."""

    def __init__(self, runner: web.AppRunner, keeping: asyncio.Task[None]) -> None:
        self._runner = runner
        self._keeping = keeping
        self.serving = False
        """Whether it has a certificate: before, handshakes fail."""

    @property
    def trouble(self) -> str:
        """Why to restart; empty where there is no reason."""
        return "the webhook's certificate is not kept any more" if self._keeping.done() else ""

    async def stop(self) -> None:
        """Answer what was asked, then stop."""
        self._keeping.cancel()
        await self._runner.cleanup()


async def start(api: Api, namespace: str, args: argparse.Namespace) -> Webhook | None:
    """Serve as the flags say; None where they say off. Raises OSError where the port is taken.

    `namespace`: the operator's own, where the Secret is.
    """
    if args.webhook_listen == OFF:
        return None
    context = certificates.server_context()
    keeper: rotation.Keeper | rotation.Mounted
    if args.webhook_certificate:
        keeper = rotation.Mounted(args.webhook_certificate, context)
    else:
        keeper = rotation.Keeper(
            api,
            namespace,
            args.webhook_host or [],
            context,
            secret=args.webhook_secret,
            configuration=args.webhook_configuration,
        )
    host, _, port = args.webhook_listen.rpartition(":")
    runner = await _serve(Injector(api, args.sidecar_image), context, host, int(port))

    def serving(there: bool) -> None:
        made.serving = there

    made = Webhook(runner, asyncio.create_task(rotation.keep(keeper.look, serving)))
    return made


async def _serve(
    injector: Injector, context: ssl.SSLContext, host: str, port: int
) -> web.AppRunner:
    async def inject(request: web.Request) -> web.Response:
        review = await request.json()
        with metrics.INJECTION_SECONDS.time():
            response = await injector.answer(review["request"])
        metrics.INJECTIONS.labels("injected" if response["allowed"] else "refused").inc()
        head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**head, "response": response})

    app = web.Application(client_max_size=_REVIEW_BYTES)
    app.add_routes([web.post(names.WEBHOOK_PATH, inject)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, host or None, port, ssl_context=context).start()
    return runner
