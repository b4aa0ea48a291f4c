"""`distributed-input inject`: manifests with sidecars, for clusters without the webhook."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from distributed_input.api.environment import SIDECAR_IMAGE_ENV
from distributed_input.api.errors import ConfigError
from distributed_input_operator.injection import offline, yaml_text

EXIT_CONFIG = 2
_STDIN = "-"

_DESCRIPTION = """\
Add the sidecar to pods, as the operator's webhook does, and print the manifests. Pods and pod
templates (of Jobs, CronJobs, StatefulSets) ask for it by label distributed-input.dev/inject: "true"
and annotation distributed-input.dev/inputs: NAME[,NAME...]. The inputs' own files are needed too.
"""
_EXAMPLES = """\
examples:
  distributed-input inject -f job.yaml -f input.yaml --image IMAGE | kubectl apply -f -
  kubectl get dinput train -o yaml | distributed-input inject -f job.yaml -f - --image IMAGE
"""


def main(argv: Sequence[str]) -> int:
    """Print; returns the exit status, 2 where something does not fit."""
    options = _parser().parse_args(argv)
    try:
        text, warnings = _injected(options.file, options.image)
    except ConfigError as error:
        print(f"distributed-input inject: {error}", file=sys.stderr)
        return EXIT_CONFIG
    for warning in warnings:
        print(f"distributed-input inject: {warning}", file=sys.stderr)
    print(text, end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="distributed-input inject",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="YAML with pods, inputs or both; - for standard input; repeatable",
    )
    made.add_argument(
        "--image",
        default=os.environ.get(SIDECAR_IMAGE_ENV, ""),
        help=f"of the sidecar, where no input names one (default: ${SIDECAR_IMAGE_ENV})",
    )
    return made


def _injected(files: Sequence[str], image: str) -> tuple[str, tuple[str, ...]]:
    try:
        result = offline.with_sidecars({name: _read(name) for name in files}, image)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return yaml_text.dumped(result.manifests), result.warnings


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is no UTF-8 text, so no YAML") from error
