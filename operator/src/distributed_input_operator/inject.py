"""The command `distributed-input inject`: adds sidecars to manifests without the webhook."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from distributed_input.api.environment import SIDECAR_IMAGE_ENV, WORKER_IMAGE_ENV
from distributed_input.api.errors import ConfigError
from distributed_input_operator.injection.offline import dump_yaml, inject_files
from distributed_input_operator.objects.snapshot import Settings

EXIT_CONFIG = 2
_STDIN = "-"

_DESCRIPTION = """\
Add the sidecar to pods, as the operator's webhook does, and print the manifests. A pod or a pod
template (of a Job, CronJob or StatefulSet) requests the sidecar with the label
distributed-input.dev/inject: "true" and the annotation distributed-input.dev/inputs:
NAME[,NAME...]. Pass the files of these inputs too.
"""
_EXAMPLES = """\
examples:
  distributed-input inject -f job.yaml -f input.yaml --image IMAGE | kubectl apply -f -
  kubectl get dinput train -o yaml | distributed-input inject -f job.yaml -f - --image IMAGE
"""


def main(argv: Sequence[str]) -> int:
    """Print the manifests with sidecars.

    Returns:
        The exit status: 0, or 2 if an input, a pod or an argument is invalid.
    """
    options = _parser().parse_args(argv)
    try:
        files = {name: _read(name) for name in options.file}
        result = inject_files(files, Settings(options.worker_image, options.image))
    except ValueError as error:  # also a ConfigError
        print(f"distributed-input inject: {error}", file=sys.stderr)
        return EXIT_CONFIG
    for warning in result.warnings:
        print(f"distributed-input inject: {warning}", file=sys.stderr)
    print(dump_yaml(result.manifests), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distributed-input inject",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="YAML file with pods, inputs or both; - reads standard input; repeatable; required",
    )
    parser.add_argument(
        "--image",
        default=os.environ.get(SIDECAR_IMAGE_ENV, ""),
        help="image of the sidecar, if no input sets spec.sidecar.image (default: the environment "
        f"variable {SIDECAR_IMAGE_ENV})",
    )
    parser.add_argument(
        "--worker-image",
        default=os.environ.get(WORKER_IMAGE_ENV, ""),
        help="image of the worker in the pod, for inputs with spec.workers.local and without "
        f"an image in its template (default: the environment variable {WORKER_IMAGE_ENV})",
    )
    return parser


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is not UTF-8 text: save it as UTF-8") from error
