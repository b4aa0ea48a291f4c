"""`python -m testing.drill.pictures [NAME ...]`: write the pictures of docs/dashboard.

The dashboard gets the address of the dispatcher, so it does not know that the input runs on this
machine: other programs that use its CPUs change the figures, but are not named as the cause.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from testing.browser import open_page
from testing.documentation.blocks import ROOT
from testing.drill.cases import CASES, Case, running

FOLDER = ROOT / "docs" / "dashboard"
PICTURES = {"no_trainer": 0, "trainer": 1, "row": 3, "splits": 4, "storage": 5, "network": 6}
"""Numbers of the cases by the names of their pictures."""
_SECONDS = 45.0
"""Time from the first rows to the picture."""
_START_SECONDS = 300.0
_SIZE = (1180, 1020)


def main() -> None:
    """Write the chosen pictures, or all."""
    for name in sys.argv[1:] or PICTURES:
        _write(CASES[PICTURES[name]], FOLDER / f"{name}.png")
        print(name, (FOLDER / f"{name}.png").stat().st_size, "bytes", flush=True)


def _write(case: Case, picture: Path) -> None:
    with running(case) as folder:
        (run,) = folder.glob("distributed-input-*/run-*")
        address = json.loads((run / "dispatcher.ready").read_text())["address"]
        command = [sys.executable, "-m", "distributed_input.cli", "dashboard", "--port", "0"]
        command += ["--dispatcher", address, "--token-file", str(run / "tokens" / "drill")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = server.stdout.readline().split()[1]
                if case.most is None:  # the others read no rows, or a few before the page exists
                    _wait_for_rows(url)
                time.sleep(_SECONDS)
                opened = open_page(url, picture, size=_SIZE)
                assert opened.console == [], opened.console
            finally:
                server.terminate()


def _wait_for_rows(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{url}data.json", timeout=20) as answer:
            inputs = json.load(answer)["inputs"]
        if any(point["rows_per_second"] for one in inputs for point in one["chart"]):
            return
        time.sleep(0.5)
    raise TimeoutError(f"no rows after {_START_SECONDS:g} s")


if __name__ == "__main__":
    main()
