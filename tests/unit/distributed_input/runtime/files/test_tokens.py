"""Tokens from files, and their rotation."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runtime.files import tokens


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


def test_the_file_is_read_without_surrounding_space(path, clock):
    assert tokens.FileToken(path, clock).accepted() == ("first",)


@pytest.mark.parametrize("content", ["", " \n", "two words", "tab\there", "ümlaut", "a\x00b"])
def test_an_invalid_file_is_rejected_without_showing_its_content(path, content):
    path.write_text(content)
    with pytest.raises(ConfigError, match="token") as caught:
        tokens.FileToken(path)
    assert not content.strip() or content not in str(caught.value)


def test_the_error_names_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="gone: No such file"):
        tokens.FileToken(tmp_path / "gone")


def test_after_a_rotation_both_tokens_are_valid_for_a_while(path, clock):
    source = tokens.FileToken(path, clock)
    path.write_text("second\n")
    clock.now = 10.0
    assert source.accepted() == source.presented() == ("second", "first")
    clock.now = 10.0 + tokens.PREVIOUS_PRESENTED_SECONDS
    assert source.presented() == ("second",)
    assert source.accepted() == ("second", "first")
    clock.now = 10.0 + tokens.PREVIOUS_ACCEPTED_SECONDS
    assert source.accepted() == ("second",)


def test_servers_accept_the_previous_token_longer_than_callers_present_it():
    assert tokens.PREVIOUS_ACCEPTED_SECONDS > tokens.PREVIOUS_PRESENTED_SECONDS


def test_a_replaced_link_is_read(path, clock, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    source = tokens.FileToken(link, clock)
    other = tmp_path / "other"
    other.write_text("second")
    link.unlink()
    link.symlink_to(other)
    clock.now = 2.0
    assert source.accepted()[0] == "second"


def test_an_invalid_file_keeps_the_last_token(path, clock):
    source = tokens.FileToken(path, clock)
    path.write_text("")
    clock.now = 2.0
    assert source.accepted() == ("first",)
    path.unlink()
    clock.now = 4.0
    assert source.accepted() == ("first",)
    path.write_text("second")
    clock.now = 6.0
    assert source.accepted() == ("second", "first")


def test_the_file_is_read_at_most_once_a_second(path, clock, monkeypatch):
    source = tokens.FileToken(path, clock)
    reads = []

    def read() -> str:
        reads.append(1)
        return "first\n"

    monkeypatch.setattr(source, "_read", read)
    for i in range(100):
        clock.now = i / 50
        source.accepted()
    assert len(reads) == 1
