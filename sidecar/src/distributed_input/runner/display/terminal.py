"""What the runner writes to stderr while a trainer writes to the same terminal.

The trainer keeps the descriptors it would have without us: isatty stays true, progress bars
and debuggers work, no byte of it is copied. So its output cannot be intercepted, and the live
lines live where it never writes: the terminal's last rows are taken out of the scrolling
region, as apt does for its progress bar. Each drawing is one write, which sets the region
anew (another program may have reset it) and leaves the cursor where it was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from distributed_input.runner.display.display import fitted

_SAVE, _RESTORE = "\0337", "\0338"
_SMALLEST = 8
"""Rows that a terminal must have for live lines."""


class Terminal:
    """Messages on a descriptor, and live lines below them where it is a capable terminal."""

    def __init__(self, descriptor: int, env: Mapping[str, str]) -> None:
        self._descriptor = descriptor
        self.is_live = os.isatty(descriptor) and env.get("TERM", "dumb") != "dumb"
        """Whether live lines can be shown."""
        self._shown = 0
        self._height = 0

    def message(self, text: str) -> None:
        """Write `text` on lines of its own."""
        lines = text.rstrip("\n").split("\n")
        if not self.is_live:
            self._write("".join(f"{line}\n" for line in lines))
            return
        _, columns = self._size()
        # The trainer's cursor may be in the middle of a line: that many spaces wrap to a fresh
        # line from there, and stay on the line from its start.
        fresh = " " * (columns - 1) + "\r\033[K"
        self._write(fresh + "".join(f"{line}\r\n" for line in lines))

    def show(self, lines: Sequence[str]) -> None:
        """Show `lines` as the live lines, or nothing where there cannot be any."""
        height, columns = self._size()
        lines = lines[: max(0, height - _SMALLEST)]
        if not self.is_live or not lines:
            return
        top = height - len(lines)
        out = ""
        if self._shown < len(lines) or self._height != height:
            # Room first: what is on the rows that the live lines take must scroll up. IND goes
            # down without changing the column, where the trainer may have a progress bar.
            out = f"{_SAVE}\033[r{_RESTORE}" + "\033D" * len(lines) + f"\033[{len(lines)}A"
        out += f"{_SAVE}\033[1;{top}r"
        for row, line in enumerate(lines, start=top + 1):
            out += f"\033[{row};1H\033[2K\033[7m{fitted(line, columns).ljust(columns)}\033[m"
        self._write(out + _RESTORE)
        self._shown, self._height = len(lines), height

    def clear(self) -> None:
        """Take the live lines away and give the whole terminal back."""
        if not self._shown:
            return
        height, _ = self._size()
        gone = "".join(f"\033[{height - row};1H\033[2K" for row in range(self._shown))
        self._write(f"{_SAVE}\033[r{gone}{_RESTORE}")
        self._shown = 0

    def _size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return 0, 80
        return size.lines, max(size.columns, 1)

    def _write(self, text: str) -> None:
        # A terminal that was closed or a pipe that nobody reads is no reason to end a training.
        data = text.encode(errors="replace")
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]
