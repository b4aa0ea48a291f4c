"""Changed copies of valid inputs: a pure function of a random generator."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from testing.fuzz.target import Subject

MOST_BYTES = 1 << 20
"""Maximum size of an input."""
_USUAL_BYTES = 1 << 16
_MOST_JSON_BYTES = 1 << 17  # Python's lists and dicts need up to 50 times the memory of their JSON
_LONG_EVERY = 500  # one of this many inputs is long
_NUMBERS = [
    *(0, 1, 2, 3, 7, 8, 9, 127, 128, 255, 256, 4095, 4096, 65535, 65536),
    *(edge + off for edge in (1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64) for off in (-1, 0, 1)),
]
_VALUES: list[Any] = [
    *(None, True, False, "", "x", "0", "-1", "\x00", "\ud800", "é" * 40, "../../etc/passwd"),
    *(0, 1, -1, 0.5, 1e308, -1e308, math.inf, math.nan, *_NUMBERS, *(-one for one in _NUMBERS)),
    *([], {}, [None], {"": None}, [[]], {"a": {"b": []}}, "9" * 5000, 10**4000),
]
_TOKENS = [
    *(b"\x00", b"\xff", b"\xff" * 9 + b"\x01", b"\x80" * 40, b"\xff" * 64, b"\x7f", b"\r\n"),
    *(b"[", b"]", b"{", b"}", b'"', b",", b":", b"null", b"NaN", b"Infinity", b"-", b"1e999"),
    *(b"&a ", b"*a", b"!!int ", b"!!python/object:os.system ", b"<<: ", b"---\n", b"\t", b"%"),
    *(b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n", b"\\ud800", b"\xc3\x28"),
]
_REPEATED = [b"[", b'{"a":', b"\xff", b"\x80", b"9", b"(", b"\x0a\x00", b"\x00", b"- ", b"{"]


def generated(subject: Subject, rng: random.Random) -> bytes:
    """Return an input for a parser."""
    seed = rng.choice(subject.seeds)
    if rng.random() < 0.01:
        return rng.randbytes(rng.randrange(200))
    if subject.is_json and rng.random() < 0.6:
        with contextlib.suppress(RecursionError):  # nested more deeply than Python can write
            changed = _changed_json(seed, rng)
            seed = changed if len(changed) <= _MOST_JSON_BYTES else seed
        if rng.random() < 0.7:
            return seed
    data = bytearray(seed)
    long = rng.randrange(_LONG_EVERY) == 0
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        data = rng.choice(_CHANGES)(data, rng, subject.seeds)
    if long:
        at = rng.randrange(len(data) + 1)
        token = rng.choice(_REPEATED)
        data[at:at] = token * rng.randrange(1, MOST_BYTES // len(token) // 2)
    del data[MOST_BYTES if long else _USUAL_BYTES + len(seed) :]
    made = bytes(data)
    return subject.seal(made) if subject.seal is not None and rng.random() < 0.5 else made


Change = Callable[[bytearray, random.Random, Sequence[bytes]], bytearray]


def _flip(data: bytearray, rng: random.Random, _seeds: Sequence[bytes]) -> bytearray:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def _replace(data: bytearray, rng: random.Random, _seeds: Sequence[bytes]) -> bytearray:
    if data:
        at = rng.randrange(len(data))
        size = rng.choice((1, 1, 2, 4, 8))
        data[at : at + size] = rng.randbytes(size)
    return data


def _cut(data: bytearray, rng: random.Random, _seeds: Sequence[bytes]) -> bytearray:
    start, stop = _range(data, rng)
    del data[start:stop]
    return data


def _end(data: bytearray, rng: random.Random, _seeds: Sequence[bytes]) -> bytearray:
    del data[rng.randrange(len(data) + 1) :]
    return data


def _repeat(data: bytearray, rng: random.Random, _seeds: Sequence[bytes]) -> bytearray:
    start, stop = _range(data, rng)
    data[start:start] = data[start:stop] * rng.choice((1, 2, 10, 200))
    return data


def _insert(data: bytearray, rng: random.Random, _seeds: Sequence[bytes]) -> bytearray:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(_TOKENS)
    return data


def _splice(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> bytearray:
    other = bytearray(rng.choice(seeds))
    start, stop = _range(other, rng)
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.choice((0, stop - start))] = other[start:stop]
    return data


def _number(data: bytearray, rng: random.Random, _seeds: Sequence[bytes]) -> bytearray:
    """Write a number of an edge case as protobuf or `struct` do, or as text."""
    number = rng.choice(_NUMBERS)
    kind = rng.randrange(5)
    if kind == 0:
        text = str(number).encode()
    elif kind == 1:
        text = (number & 0xFFFFFFFF).to_bytes(4, "little")
    elif kind == 2:
        text = (number & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
    else:
        text = bytes(_varint(number))
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.choice((0, 1, len(text)))] = text
    return data


def _varint(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield (number & 0x7F) | 0x80
        number >>= 7
    yield number


def _nest(data: bytearray, rng: random.Random, _seeds: Sequence[bytes]) -> bytearray:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(_REPEATED) * rng.choice((3, 30, 300, 3000))
    return data


_CHANGES: tuple[Change, ...] = (
    *(_flip, _flip, _replace, _replace, _cut, _end, _repeat),
    *(_insert, _splice, _number, _number, _nest),
)


def _range(data: bytearray, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 16, 64, 1024)))


def _changed_json(seed: bytes, rng: random.Random) -> bytes:
    """Return JSON with other values or other keys. A part of it may be nested very deeply."""
    try:
        root: list[Any] = [json.loads(seed)]
    except ValueError:
        return seed
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        holder, key = rng.choice(list(_places(root)))
        if rng.random() < 0.15 and isinstance(holder, dict):
            del holder[key]
        elif rng.random() < 0.1 and isinstance(holder, dict):
            holder[rng.choice(["", "x", "\x00", "a.b", "é"])] = holder.pop(key)
        elif rng.random() < 0.1 and isinstance(holder, list):
            holder[key:key] = [holder[key]] * rng.choice((1, 3, 50))
        elif rng.random() < 0.2:
            holder[key] = rng.choice(list(_places(root)))[0]  # the value of another place
            holder[key] = json.loads(_text(holder[key])) if holder[key] is not holder else None
        elif rng.random() < 0.05:
            depth = rng.choice((20, 200, 900))
            holder[key] = json.loads("[" * depth + "]" * depth)
        else:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))  # later changes may be in it
    return _text(root[0]).encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError:  # it contains itself, or a number that is too long
        return "null"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or dict below a value, with each of its indices or keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
