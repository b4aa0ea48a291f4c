"""Parsers that are wrong in different ways. As a program: print what the fuzzer finds in each."""

from __future__ import annotations

import ctypes
import json
import threading

from testing.fuzz import run
from testing.fuzz.target import Subject, Target

_SEED = b"valid"
_kept: list[bytes] = []


def _refuse(data: bytes) -> None:
    raise ValueError("declared")


def _fail(data: bytes) -> None:
    raise KeyError("undeclared")


def _spin(data: bytes) -> None:
    while True:
        pass


def _leak(data: bytes) -> None:
    _kept.append(bytes(bytearray(b"x") * (8 << 20)))


def _allocate(data: bytes) -> None:
    bytearray(4 << 30)


def _crash(data: bytes) -> None:
    ctypes.string_at(0)


def _block(data: bytes) -> None:
    threading.Event().wait()


PARSERS = (_refuse, _fail, _spin, _leak, _allocate, _crash, _block)


def _target(name: str) -> Target:
    parser = globals()[f"_{name}"]

    def parse(data: bytes) -> None:
        if data != _SEED:
            parser(data)

    return Target(name, "", lambda: Subject(parse, [_SEED], (ValueError,)))


if __name__ == "__main__":
    run.CPU_SECONDS = 0.1
    names = [parser.__name__.removeprefix("_") for parser in PARSERS]
    found = {}
    for name in names:
        run._BLOCKED_SECONDS = 1.0 if name == "block" else 60.0  # others may wait for a CPU
        found[name] = run.run(_target(name), 30, 0).findings
    print(json.dumps({name: [one.cause for one in causes] for name, causes in found.items()}))
