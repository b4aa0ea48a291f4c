"""Opens a page in a real browser: Debian's headless Chromium, unpacked and cached.

`python -m testing.browser` downloads it. make runs this before tests, which have a time limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testing.cluster.binaries import cache_dir, create_once
from testing.cluster.debian import AptMissingError, unpack

_NAME = "chromium-headless-shell"
_DATA = "chromium-common"
_SECONDS = 120.0
_DOWNLOAD_SECONDS = 900.0


class BrowserMissingError(Exception):
    """There is no browser, and its package cannot be had. The message has one line."""


@dataclass(frozen=True)
class Opened:
    """A page as the browser shows it."""

    dom: str
    """The document after scripts ran."""
    console: Sequence[str]
    """What the page printed to the console, and violations of its policy."""


def open_page(
    url: str, picture: Path | None = None, *, size: tuple[int, int] = (1180, 900), ms: int = 1500
) -> Opened:
    """Open a page, and with `picture` write a screenshot (PNG).

    Args:
        url: address of the page.
        picture: file to write.
        size: width and height of the window.
        ms: milliseconds of the page's own clock, which waits for requests.

    Raises:
        BrowserMissingError: there is none, and it cannot be downloaded.
    """
    found, libraries = program()
    command = [
        *(str(found), "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--hide-scrollbars", "--enable-logging=stderr", f"--window-size={size[0]},{size[1]}"),
        *(f"--virtual-time-budget={ms}", "--dump-dom"),
        *([f"--screenshot={picture}"] if picture else []),
        url,
    ]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env={**os.environ, **libraries},
    )
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Opened(done.stdout, console)


def program(seconds: float = _SECONDS) -> tuple[Path, dict[str, str]]:
    """Return the browser, and the variables that it needs. Download it within `seconds`.

    Raises:
        BrowserMissingError: there is none, and it cannot be downloaded.
    """
    if installed := shutil.which(_NAME):
        return Path(installed), {}

    def download(new: Path) -> None:
        unpack(_NAME, new, _DATA, seconds=seconds)

    try:
        root = create_once(cache_dir() / "chromium", "apt", download)
    except AptMissingError as error:
        raise BrowserMissingError(str(error)) from error
    except subprocess.SubprocessError as error:
        text = f"{_NAME} is not installed, and cannot be downloaded: {error}"
        raise BrowserMissingError(" ".join(text.split()).rstrip(".")) from error
    (found,) = root.glob(f"usr/lib/chromium/{_NAME}")
    libraries = [str(one) for one in root.glob("usr/lib/*-linux-gnu*")]
    return found, {"LD_LIBRARY_PATH": ":".join([*libraries, *map(_pulse, libraries)])}


def _pulse(libraries: str) -> str:
    return f"{libraries}/pulseaudio"


if __name__ == "__main__":
    try:
        program(_DOWNLOAD_SECONDS)
    except BrowserMissingError as missing:
        print(f"browser: {missing}: its tests are skipped", file=sys.stderr)
