"""A package index and an OCI registry on this machine, for tests.

Both are processes on free ports of the loopback interface. `python -m testing.publishing.servers
FOLDER` is the index.
"""

from __future__ import annotations

import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testing.cluster.binaries import binary

_SECONDS = 30.0
_HOST = "127.0.0.1"


@contextmanager
def package_index(folder: Path) -> Iterator[str]:
    """Serve the wheels and sdists in a folder as an index. Yield its URL.

    The index accepts uploads at this URL, without a password. Installers use `URL/simple/`.
    """
    with _server(sys.executable, "-m", __name__, folder) as port:
        yield f"http://{_HOST}:{port}"


@contextmanager
def oci_registry() -> Iterator[str]:
    """Serve an OCI registry in memory. Yield its name, such as `127.0.0.1:4000`."""
    with _server(binary("crane"), "registry", "serve", "--address", f"{_HOST}:0") as port:
        yield f"{_HOST}:{port}"


@contextmanager
def _server(*command: str | Path) -> Iterator[str]:
    """Run a server that writes `port NUMBER` to stderr. Yield the number."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            ready, _, _ = select.select([process.stderr], [], [], _SECONDS)
            line = process.stderr.readline() if ready else ""
            found = re.search(r"port (\d+)", line)
            assert found, f"{command} did not start: {line}"
            # The log of requests would fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[1]
        finally:
            process.terminate()


def _serve_packages(folder: Path) -> None:
    from wsgiref.simple_server import make_server

    import pypiserver

    # Uploads need no password. Packages of other projects are not looked up.
    app = pypiserver.app(roots=[folder], authenticate=[], password_file=".", disable_fallback=True)
    with make_server(_HOST, 0, app) as server:
        print(f"port {server.server_port}", file=sys.stderr, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    _serve_packages(Path(sys.argv[1]))
