"""Output to a terminal and to a file."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

import pytest

from distributed_input.runner.display.terminal import Terminal


class Screen:
    """A pseudo-terminal. `read` returns what was written since the last call."""

    def __init__(self, rows: int, columns: int) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        os.set_blocking(self.master, False)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> str:
        try:
            return os.read(self.master, 65536).decode()
        except BlockingIOError:
            return ""


@pytest.fixture
def screen():
    terminal = Screen(24, 40)
    yield terminal
    os.close(terminal.master)
    os.close(terminal.slave)


def on(screen: Screen) -> Terminal:
    return Terminal(screen.slave, {"TERM": "xterm"})


def test_live_lines_are_outside_the_scrolling_region(screen):
    terminal = on(screen)
    terminal.show(["one", "two"])
    first = screen.read()
    assert "\033D\033D\033[2A" in first  # scrolls once to make room
    assert first.endswith(
        "\0337\033[1;22r"
        f"\033[23;1H\033[2K\033[7m{'one':40}\033[m"
        f"\033[24;1H\033[2K\033[7m{'two':40}\033[m\0338"
    )
    terminal.show(["one", "two"])
    again = screen.read()
    assert "\033D" not in again
    assert again.startswith("\0337\033[1;22r")  # set again, because the trainer may have reset it


def test_clear_resets_the_scrolling_region(screen):
    terminal = on(screen)
    terminal.show(["one", "two"])
    screen.read()
    terminal.clear()
    assert screen.read() == "\0337\033[r\033[24;1H\033[2K\033[23;1H\033[2K\0338"
    terminal.clear()
    assert screen.read() == ""


def test_a_resized_terminal_gets_a_new_scrolling_region(screen):
    terminal = on(screen)
    terminal.show(["one"])
    screen.read()
    screen.resize(30, 40)
    terminal.show(["one"])
    assert "\033[r\0338\033D\033[1A\0337\033[1;29r" in screen.read()


def test_long_lines_are_cut(screen):
    on(screen).show(["x" * 50])
    assert f"\033[7m{'x' * 37}...\033[m" in screen.read()


def test_a_tiny_terminal_shows_no_live_lines(screen):
    screen.resize(8, 40)
    on(screen).show(["one"])
    assert screen.read() == ""


def test_a_message_starts_on_a_new_line(screen):
    on(screen).message("news")
    assert screen.read().replace("\r\r", "\r") == " " * 39 + "\r\033[Knews\r\n"


def test_a_file_gets_plain_lines(tmp_path):
    file = tmp_path / "err"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    terminal = Terminal(descriptor, {"TERM": "xterm"})
    assert not terminal.is_live
    terminal.message("news\nmore")
    terminal.show(["one"])
    terminal.clear()
    os.close(descriptor)
    assert file.read_text() == "news\nmore\n"
    terminal.message("after the end")  # a closed stderr raises no error


def test_a_dumb_terminal_is_not_live(screen):
    assert not Terminal(screen.slave, {"TERM": "dumb"}).is_live
    assert not Terminal(screen.slave, {}).is_live
