"""Writes kubeconfig files."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from testing.cluster.pki import Pair


def user(pair: Pair) -> dict[str, str]:
    """Return a kubeconfig's `user` that authenticates with a certificate."""
    return {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }


def write(
    path: Path, url: str, authority: bytes, user: dict[str, str], namespace: str = "default"
) -> None:
    """Write a kubeconfig, readable by its owner only, with one context.

    authority: PEM of the server's CA. user: the `user` entry, from `user()` or {"token": …}.
    """
    trust = base64.b64encode(authority).decode()
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    path.touch(mode=0o600)
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": "test",
                        "cluster": {"server": url, "certificate-authority-data": trust},
                    }
                ],
                "users": [{"name": "test", "user": user}],
                "contexts": [{"name": "test", "context": context}],
                "current-context": "test",
            }
        )
    )
