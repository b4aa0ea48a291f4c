"""The chart on the cluster, installed as a user does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testing.charts.rendering import CHART, NAME, RELEASE, helm
from testing.cluster.kubectl import Kubectl

NAMESPACE = "distributed-input-system"
OPERATOR = f"deployment/{NAME}"


class Release:
    """The chart in its namespace. images: by the Dockerfile's targets."""

    def __init__(self, kubeconfig: Path, images: Mapping[str, str]) -> None:
        self.kubectl = Kubectl(kubeconfig, NAMESPACE)
        self._where = (f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}")
        self._images = [
            flag
            for target, image in images.items()
            for flag in (
                f"--set=images.{target}.repository={image.rpartition(':')[0]}",
                f"--set-string=images.{target}.tag={image.rpartition(':')[2]}",
            )
        ]

    def install(self, chart: Path = CHART, *flags: str) -> None:
        """Install, or upgrade; returns when its pods are ready."""
        command = ("upgrade", "--install", RELEASE, str(chart), "--create-namespace", "--wait")
        self._helm(*command, "--timeout=3m", *self._images, *flags)

    def test(self) -> str:
        """`helm test`; what it prints."""
        return self._helm("test", RELEASE, "--timeout=3m")

    def uninstall(self) -> None:
        """Take it away, and the definitions with all inputs, which it keeps."""
        self._helm("uninstall", RELEASE, "--wait", "--timeout=3m")
        kinds = ("distributedinputs", "inputpolicies")
        self.kubectl("delete", "crd", *(f"{kind}.distributed-input.dev" for kind in kinds))
        self.kubectl("delete", "namespace", NAMESPACE)

    def logs(self) -> str:
        """Of all replicas."""
        return self.kubectl(
            "logs", "--prefix", "--tail=-1", f"-lapp.kubernetes.io/instance={RELEASE}"
        )

    def _helm(self, *command: str) -> str:
        done = helm(*command, *self._where, seconds=200)
        assert done.returncode == 0, f"helm {command[0]}: {done.stderr}{done.stdout}"
        return done.stdout
