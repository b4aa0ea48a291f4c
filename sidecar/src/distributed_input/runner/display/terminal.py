"""Messages and live lines on a terminal to which the trainer also writes.

The trainer inherits the runner's streams. isatty stays true, progress bars and debuggers work, and
no output is copied. Its output therefore cannot be intercepted.

The live lines are in the last rows of the terminal. The scrolling region excludes these rows, as
in apt's progress bar, so the trainer never writes there. Each update is one write. It sets the
region again, because another program may have reset it, and restores the cursor.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from distributed_input.runner.display.format import truncated
from distributed_input.runner.processes.trainers import write_all

_SAVE, _RESTORE = "\0337", "\0338"
_MIN_OUTPUT_ROWS = 8
"""Minimum number of rows that remain for the trainer's output."""


class Terminal:
    """Writes messages to a file descriptor, and live lines if it is a capable terminal."""

    def __init__(self, descriptor: int, env: Mapping[str, str]) -> None:
        self._descriptor = descriptor
        self.is_live = os.isatty(descriptor) and env.get("TERM", "dumb") != "dumb"
        """Whether the descriptor is a terminal that supports live lines."""
        self._shown = 0
        self._height = 0

    def message(self, text: str) -> None:
        """Write `text` on separate lines."""
        lines = text.rstrip("\n").split("\n")
        if not self.is_live:
            self._write("".join(f"{line}\n" for line in lines))
            return
        _, columns = self._size()
        # The trainer's cursor may be within a line. This number of spaces wraps to a new line if
        # it is, and stays on the line if the cursor is at its start.
        fresh = " " * (columns - 1) + "\r\033[K"
        self._write(fresh + "".join(f"{line}\r\n" for line in lines))

    def show(self, lines: Sequence[str]) -> None:
        """Show `lines` as the live lines, if the terminal supports them and has enough rows."""
        height, columns = self._size()
        lines = lines[: max(0, height - _MIN_OUTPUT_ROWS)]
        if not self.is_live or not lines:
            return
        top = height - len(lines)
        out = ""
        if self._shown < len(lines) or self._height != height:
            # Scroll up what is in the rows of the live lines. IND moves the cursor down without a
            # change of the column, where the trainer may have a progress bar.
            out = f"{_SAVE}\033[r{_RESTORE}" + "\033D" * len(lines) + f"\033[{len(lines)}A"
        out += f"{_SAVE}\033[1;{top}r"
        for row, line in enumerate(lines, start=top + 1):
            out += f"\033[{row};1H\033[2K\033[7m{truncated(line, columns).ljust(columns)}\033[m"
        self._write(out + _RESTORE)
        self._shown, self._height = len(lines), height

    def clear(self) -> None:
        """Remove the live lines and reset the scrolling region."""
        if not self._shown:
            return
        height, _ = self._size()
        erase = "".join(f"\033[{height - row};1H\033[2K" for row in range(self._shown))
        self._write(f"{_SAVE}\033[r{erase}{_RESTORE}")
        self._shown = 0

    def _size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return 0, 80
        return size.lines, max(size.columns, 1)

    def _write(self, text: str) -> None:
        write_all(self._descriptor, text.encode(errors="replace"))
