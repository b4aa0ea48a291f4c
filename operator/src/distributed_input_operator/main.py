"""The operator's process: one replica leads and works, the others stand by."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib.metadata import version

from kubernetes.aio.client import ApiClient

from distributed_input.api import environment, names
from distributed_input_operator import health, metrics, process
from distributed_input_operator.controller import leader
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.control_loop import ControlLoop
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.controller.rollouts import Rollouts
from distributed_input_operator.controller.tokens import InputTokens
from distributed_input_operator.kube import preconditions
from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.issuer_secret import IssuerSecret
from distributed_input_operator.kube.kinds import POLICY, WATCHED
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.children import digest
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.reconcile.pace import DEFAULT_LIMIT, PaceLimit, parse_limit
from distributed_input_operator.webhook.rotation import (
    CertificatePublisher,
    SharedObjects,
    refresh_forever,
)

_log = logging.getLogger("distributed_input_operator")
_STOP_SECONDS = 5.0
_MIN_CERTIFICATE_HOURS, _MAX_CERTIFICATE_HOURS = 0.25, 8760.0
"""A mounted volume has a new certificate only after a minute or two."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=names.OPERATOR,
        description="Run the input pipelines of DistributedInput resources.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="namespace to serve; repeatable (default: all)",
    )
    parser.add_argument(
        "--image-pull-secret",
        action="append",
        default=[],
        metavar="NAME",
        help="Secret in each input's namespace, for the images of its dispatcher and workers; "
        "repeatable",
    )
    parser.add_argument(
        "--token-key-secret",
        default=names.TOKEN_KEY_SECRET,
        metavar="NAME",
        help="Secret in the operator's namespace with the key of the inputs' tokens, which the "
        "operator creates (default: %(default)s)",
    )
    parser.add_argument(
        "--certificate-hours",
        type=_hours,
        default=24.0,
        metavar="HOURS",
        help="time for which certificates of encrypted inputs are valid; they are renewed after "
        "2/3 of it (default: %(default)g)",
    )
    parser.add_argument(
        "--authority-secret",
        default="",
        metavar="NAME",
        help="Secret in the operator's namespace with an authority, tls.crt and tls.key, that "
        "signs the authorities of encrypted inputs, and that another program renews, such as "
        "cert-manager (default: authorities sign themselves)",
    )
    parser.add_argument(
        "--webhook-host",
        action="append",
        default=[],
        metavar="NAME",
        help="DNS name under which the API server calls the webhook, SERVICE.NAMESPACE.svc, for "
        "which the operator makes a certificate; repeatable (default: no certificate)",
    )
    parser.add_argument(
        "--lease-namespace",
        default="",
        metavar="NAME",
        help="namespace of the Lease by which one operator of a class leads (default: its own)",
    )
    parser.add_argument(
        "--rollout-max-inputs",
        type=_limit,
        default=DEFAULT_LIMIT,
        metavar="NUMBER|PERCENT",
        help="maximum number of inputs whose pods get another template of the operator at the same "
        "time, or a percentage of all inputs, such as 10%% (default: %(default)s)",
    )
    process.add_flags(parser)
    return parser


def _limit(text: str) -> PaceLimit:
    try:
        return parse_limit(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _hours(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _MIN_CERTIFICATE_HOURS <= value <= _MAX_CERTIFICATE_HOURS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number from {_MIN_CERTIFICATE_HOURS} to {_MAX_CERTIFICATE_HOURS}"
        )
    return value


async def _run(args: argparse.Namespace) -> int:
    await process.load_credentials()
    stopping = process.stop_event()
    async with ApiClient() as client:
        renewals = []
        if args.webhook_host:
            renewals.append(asyncio.create_task(_renew_certificate(Api(client), args)))

        def failure() -> str:
            ended = any(one.done() for one in renewals)
            return "the renewal of the webhook's certificate has stopped" if ended else ""

        host, _, port = args.listen.rpartition(":")
        page = await health.serve(host, int(port), failure, lambda: True)
        name = names.operator(args.operator_class)
        lock_namespace = args.lease_namespace or process.own_namespace()
        connect = partial(leader.connect, name, lock_namespace, _identity())
        work = partial(_work, args, Api(client, manager=name))
        working = asyncio.create_task(leader.run_as_leader(connect, work))
        waiting = asyncio.create_task(stopping.wait())
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, working, *renewals):
            task.cancel()
        await asyncio.wait({working}, timeout=_STOP_SECONDS)
    await page.cleanup()
    if working.done() and not working.cancelled() and (error := working.exception()):
        raise error
    return 0


async def _renew_certificate(api: Api, args: argparse.Namespace) -> None:
    place = process.own_namespace(), args.webhook_secret, args.webhook_configuration
    publisher = CertificatePublisher(SharedObjects(api, *place), args.webhook_host)
    await refresh_forever(publisher.refresh, asyncio.Event())


async def _work(args: argparse.Namespace, api: Api, lock: leader.LeaseLock) -> None:
    _log.info("%s is the leader", lock.identity)
    metrics.LEADER.set(1)
    await preconditions.wait_until_met(api, args.namespace or [None])
    settings = Settings(
        args.worker_image,
        args.sidecar_image,
        process.own_namespace(),
        args.image_pull_policy,
        tuple(args.image_pull_secret),
        args.operator_class,
    )
    settings = replace(settings, revision=digest([version(names.OPERATOR), str(settings)]))
    # Two operators would each grant the whole budget.
    budgets = not args.operator_class and await preconditions.can_watch_policy(
        api, required=not args.namespace
    )
    kinds = (*WATCHED, POLICY) if budgets else WATCHED
    name = args.authority_secret
    tokens = InputTokens(api, process.own_namespace(), args.token_key_secret)
    context = ControllerContext(
        api,
        Store(args.operator_class),
        tokens,
        DispatcherClient(),
        settings,
        certificate_life=timedelta(hours=args.certificate_hours),
        issuer=IssuerSecret(api, process.own_namespace(), name) if name else None,
        rollouts=Rollouts(args.rollout_max_inputs),
    )
    await ControlLoop(context, kinds, args.namespace, lambda: lock.is_held).run()


def _identity() -> str:
    # It is new in each process: a restarted process must not continue the lead of the previous one.
    name = os.environ.get(environment.POD_NAME_ENV) or socket.gethostname()
    return f"{name}_{uuid.uuid4().hex[:8]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the operator until SIGTERM. Return the exit status."""
    args = _parser().parse_args(argv)
    if message := process.missing_image(args):
        sys.stderr.write(f"{names.OPERATOR}: {message}\n")
        return 2
    process.set_up_logging(args.log_level)
    process.raise_file_limit()
    return process.run(_run(args), _STOP_SECONDS)
