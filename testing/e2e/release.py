"""Installs the chart on the cluster with helm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testing.charts.rendering import CHART, NAME, RELEASE, helm
from testing.cluster.kubectl import Kubectl

NAMESPACE = "distributed-input-system"
OPERATOR = f"deployment/{NAME}"


class Release:
    """The chart's release in its namespace. images: image names by target of the Dockerfile."""

    def __init__(self, kubeconfig: Path, images: Mapping[str, str]) -> None:
        self.kubectl = Kubectl(kubeconfig, NAMESPACE)
        self._flags = (f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}")
        self._images = image_flags(images)

    def install(self, chart: Path = CHART, *flags: str) -> None:
        """Install or upgrade the chart. Return when its pods are ready."""
        command = ("upgrade", "--install", RELEASE, str(chart), "--create-namespace", "--wait")
        self._helm(*command, "--timeout=3m", *self._images, *flags)

    def roll_back(self) -> None:
        """Return to the chart and the values before the last upgrade."""
        self._helm("rollback", RELEASE, "--wait", "--timeout=3m")

    def test(self) -> str:
        """Run `helm test` and return its output."""
        return self._helm("test", RELEASE, "--timeout=3m")

    def uninstall(self) -> None:
        """Uninstall the chart. Also delete its CRDs with all inputs, which helm keeps."""
        self._helm("uninstall", RELEASE, "--wait", "--timeout=3m")
        kinds = ("distributedinputs", "inputpolicies")
        self.kubectl("delete", "crd", *(f"{kind}.distributed-input.dev" for kind in kinds))
        self.kubectl("delete", "namespace", NAMESPACE)

    def logs(self) -> str:
        """Return the logs of all replicas."""
        return self.kubectl(
            "logs", "--prefix", "--tail=-1", f"-lapp.kubernetes.io/instance={RELEASE}"
        )

    def _helm(self, *command: str) -> str:
        result = helm(*command, *self._flags, seconds=200)
        assert result.returncode == 0, f"helm {command[0]}: {result.stderr}{result.stdout}"
        return result.stdout


def image_flags(images: Mapping[str, str]) -> list[str]:
    """Return helm's flags for image names by target of the Dockerfile."""
    return [
        flag
        for target, image in images.items()
        for flag in (
            f"--set=images.{target}.repository={image.rpartition(':')[0]}",
            f"--set-string=images.{target}.tag={image.rpartition(':')[2]}",
        )
    ]
