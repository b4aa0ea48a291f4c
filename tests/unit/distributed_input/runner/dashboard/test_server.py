"""The dashboard's server: the page, its data, and who may read them."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import socket
from urllib.parse import urlsplit

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner.dashboard.server import serving


@pytest.fixture(scope="module")
def address():
    with serving(0, lambda: {"inputs": []}) as url:
        yield urlsplit(url).netloc


def get(address: str, path: str, host: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("GET", path, headers={"Host": host or address})
    return connection.getresponse()


def test_the_page_and_its_data(address):
    page = get(address, "/")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    data = get(address, "/data.json")
    assert json.loads(data.read()) == {"inputs": []}
    assert data.headers["Cache-Control"] == "no-store"
    assert get(address, "/other").status == 404


def test_the_page_loads_nothing_from_elsewhere(address):
    page = get(address, "/")
    text = page.read().decode()
    assert re.findall(r'(?:src|href)="(?!data:)', text) == []
    assert "innerHTML" not in text
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("path", ["/", "/data.json"])
@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:PORT", "127.0.0.1:1", ""])
def test_another_host_name_is_refused(address, path, host):
    """A site can make its own name resolve to 127.0.0.1, and then read what this server answers."""
    answer = get(address, path, host.replace("PORT", address.partition(":")[2]) or "none")
    assert answer.status == 421
    text = answer.read().decode()
    assert "inputs" not in text
    assert f"open http://{address}/ or http://localhost:{address.partition(':')[2]}/" in text


def test_localhost_is_this_machine(address):
    assert get(address, "/", f"localhost:{address.partition(':')[2]}").status == 200


def test_it_listens_on_the_loopback_address_only(address):
    host, port = address.split(":")
    assert host == "127.0.0.1"
    for _, _, _, _, (other, *_) in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET):
        if not str(other).startswith("127."):
            with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
                socket.create_connection((str(other), int(port)), timeout=2)


def test_a_port_in_use_is_an_error(address):
    port = int(address.partition(":")[2])
    with pytest.raises(ConfigError, match=f"--port {port}: .*use another port"):
        with serving(port, dict):
            pass
