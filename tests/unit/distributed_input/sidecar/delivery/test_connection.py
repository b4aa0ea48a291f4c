"""Of two readers of one input through one sidecar the newer gets its place."""

from __future__ import annotations

import select
import socket
from pathlib import Path

import pytest

from distributed_input.api.errors import FencedError
from distributed_input.client import reader as reader_module
from tests.unit.distributed_input.sidecar.system import BATCH, eventually, running

ROWS = 20_000
SMALL = 1 << 12
"""Bytes that the older one's socket holds, far fewer than an epoch's packets."""


def test_a_reader_that_reads_nothing_keeps_no_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in another process, which the newer cannot close itself."""
    monkeypatch.setattr(reader_module.InputReader, "_replace_older", lambda self: None)
    with running(tmp_path, ROWS) as system:
        made = system.add_sidecar()
        older = system.connect()
        broken = made._connection
        assert broken is not None
        broken._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        units = older.units(older.begin())
        assert next(units).rows == BATCH
        eventually(lambda: not select.select([], [broken._socket], [], 0)[1])
        newer = system.connect()
        assert next(newer.units(newer.begin())).rows == BATCH
        with pytest.raises(FencedError, match="one reader at a time"):
            sum(1 for _ in units)  # what had come, and then this
        newer.close()
        older.close()
        del older, units, newer
        eventually(lambda: made.ring.used == 0)
