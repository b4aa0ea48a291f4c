"""`python -m testing.publishing version|build|publish X.Y.Z`: the steps of `make release`.

version: writes the version to all files that need it. build: writes the artefacts to a folder.
publish: prints what it would run and what is missing; with --publish, signs and publishes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from testing.publishing import artifacts, krew, supply_chain
from testing.publishing import version as versions
from testing.publishing.publish import Targets, publish, unready


def main() -> int:
    """Run one step. Return its exit status: 1 if a command failed, 2 if something is missing."""
    args = _parser().parse_args()
    try:
        if args.step == "version":
            versions.write(args.version)
            return 0
        if problems := versions.problems(args.version):
            return _report(problems)
        if args.step == "build":
            return _build(args)
        return _publish(args)
    except ValueError as error:
        return _report([str(error)])
    except subprocess.CalledProcessError as error:
        print(error.stderr or "", f"release: {error}", sep="", file=sys.stderr)
        return 1


def _build(args: argparse.Namespace) -> int:
    dist: Path = args.dist
    dist.mkdir(exist_ok=True)
    for old in artifacts.files(dist):
        old.unlink()
    artifacts.build_distributions(dist)
    artifacts.build_chart(dist, args.registry)
    krew.build_plugin(dist, args.version, args.download_url or "DOWNLOAD_URL")
    supply_chain.build_sboms(dist)
    supply_chain.build_provenance(dist, args.version)
    return 0


def _publish(args: argparse.Namespace) -> int:
    targets = Targets(args.registry, args.index_url, args.download_url)
    reasons = unready(args.version, targets)
    if args.publish:
        if reasons:
            return _report(reasons)
        publish(args.dist, targets)
        return 0
    shown = Targets(targets.registry or "REGISTRY", targets.index_url or "INDEX_URL")
    publish(args.dist, shown, dry_run=True)
    for reason in reasons:
        print(f"not ready: {reason}")
    print("Nothing was published. To publish: make release PUBLISH=1 ...")
    return 0


def _report(problems: list[str]) -> int:
    for problem in problems:
        print(f"release: {problem}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testing.publishing", description=__doc__)
    parser.add_argument("step", choices=("version", "build", "publish"))
    parser.add_argument("version", help="version of the release: X.Y.Z")
    parser.add_argument("--dist", type=Path, default=Path("dist"), help="folder of the artefacts")
    parser.add_argument("--registry", default="", help="registry of images and charts")
    parser.add_argument("--index-url", default="", help="upload URL of a package index")
    parser.add_argument("--download-url", default="", help="URL of the release's files")
    parser.add_argument("--publish", action="store_true", help="sign and publish")
    return parser


if __name__ == "__main__":
    sys.exit(main())
