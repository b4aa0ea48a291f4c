"""The web server of the dashboard: one page and its data, for browsers on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from distributed_input.api.errors import ConfigError

HOST = "127.0.0.1"
_PAGE = Path(__file__).with_name("page.html")
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def content_security_policy(page: str) -> str:
    """Return a policy that allows the page's own script and style, and requests to its server."""
    allowed = {"script": "", "style": ""}
    for kind, text in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        allowed[kind] += f" 'sha256-{digest}'"
    return (
        f"default-src 'none'; script-src{allowed['script']}; style-src{allowed['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


@contextmanager
def serving(port: int, values: Callable[[], dict[str, Any]]) -> Iterator[str]:
    """Serve the page and the current values on the loopback address; yield its URL.

    Port 0 selects a free one.

    Raises:
        ConfigError: the port is in use.
    """
    page = _PAGE.read_text(encoding="utf-8")
    try:
        server = ThreadingHTTPServer((HOST, port), _handler(page, values))
    except OSError as error:
        raise ConfigError(f"--port {port}: {error.strerror}: use another port") from error
    thread = Thread(target=server.serve_forever, name="dashboard-server", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(page: str, values: Callable[[], dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    policy = content_security_policy(page)

    class Handler(BaseHTTPRequestHandler):
        """Answers GET of the page and of its data, to requests that name this machine."""

        server_version = "distributed-input"
        sys_version = ""

        def do_GET(self) -> None:
            """Answer one request."""
            if not self._names_this_machine():
                # A page of another site can make its name resolve to 127.0.0.1.
                urls = " or ".join(f"http://{name}/" for name in self._names())
                text = f"unknown host: open {urls}. To forward a port, use the same number.\n"
                self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", text)
            elif self.path == "/":
                self._answer(HTTPStatus.OK, "text/html", page)
            elif self.path == "/data.json":
                self._answer(HTTPStatus.OK, "application/json", json.dumps(values()))
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")

        def _names_this_machine(self) -> bool:
            return self.headers.get("Host") in self._names()

        def _names(self) -> tuple[str, str]:
            port = self.connection.getsockname()[1]
            return f"{HOST}:{port}", f"localhost:{port}"

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", policy)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's
            """Print nothing: the terminal belongs to the user."""

    return Handler
