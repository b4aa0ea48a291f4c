"""A fake part that only starts, lives and ends: `fake_process.py KIND FLAGS...`.

The variable FAKE_<KIND> selects a failure:
    exit:STATUS   print the last line of a traceback and exit with STATUS before being ready
    never         never become ready
    die:SECONDS   become ready, and end with SIGSEGV a little later
    ignore-term   ignore SIGTERM
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from urllib.parse import unquote


def main() -> int:
    kind = sys.argv[1]
    parser = argparse.ArgumentParser()
    for flag in ("--listen", "--ready-file", "--token-file", "--dir", "--config"):
        parser.add_argument(flag)
    options, _ = parser.parse_known_args(sys.argv[2:])
    behaviour, _, value = os.environ.get(f"FAKE_{kind.upper()}", "").partition(":")
    stop = threading.Event()
    if behaviour == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if behaviour == "exit":
        print("ModuleNotFoundError: No module named 'digits'", file=sys.stderr, flush=True)
        return int(value)
    token = Path(options.token_file)  # for a sidecar a folder with all inputs' tokens
    for private in token.iterdir() if token.is_dir() else [token]:
        assert private.stat().st_mode & 0o777 == 0o600
    server = socket.socket(socket.AF_UNIX)
    if options.listen:
        path = Path(unquote(options.listen.removeprefix("unix:")))
        path.unlink(missing_ok=True)
        server.bind(str(path))
        address = options.listen
    else:
        assert json.loads(Path(options.config).read_text())["inputs"]
        (Path(options.dir) / "ring").write_bytes(b"\0" * 4096)
        address = options.dir
    if behaviour != "never":
        part = Path(f"{options.ready_file}.part")
        part.write_text(json.dumps({"address": address, "metrics": None, "pid": os.getpid()}))
        part.rename(options.ready_file)
    print(f'{{"level": "info", "message": "{kind} serves"}}', file=sys.stderr, flush=True)
    if behaviour == "die":
        stop.wait(float(value))
        os.kill(os.getpid(), signal.SIGSEGV)
    stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
