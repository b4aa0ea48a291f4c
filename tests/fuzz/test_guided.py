"""What the fuzzer with feedback does itself, without atheris: see `testing.fuzz.guided`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from testing.fuzz import guided
from testing.fuzz.run import Outcome
from testing.fuzz.target import Subject, Target


def parse(data: bytes) -> None:
    if data != b"valid":
        raise (ValueError if data == b"refused" else KeyError)(data)


SUBJECT = Subject(parse, [b"valid"], (ValueError,))
TARGET = Target("test/parser", "", lambda: SUBJECT)


def test_the_first_input_of_each_place_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guided, "KEPT", tmp_path)
    sent: list[Outcome] = []
    index = SimpleNamespace(value=0)
    inputs = guided._Inputs(TARGET, SUBJECT, 4, index, sent.append)
    for data in (b"valid", b"refused", b"first", b"second", b"more than were wanted"):
        assert (index.value == 3) == bool(sent)
        inputs.parse(data)
    (outcome,) = sent
    assert (outcome.inputs, outcome.accepted, index.value) == (4, 1, 3)
    assert [one.index for one in outcome.findings] == [2]
    assert [one.name for one in tmp_path.iterdir()] == ["test-parser-2"]
    assert (tmp_path / "test-parser-2").read_bytes() == b"first"
    assert guided.place(TARGET, 0, 2) == f"--only test/parser --file {tmp_path}/test-parser-2"
    assert guided.place(TARGET, 0, 3).endswith("test-parser-crash")


def test_too_much_memory_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guided, "KEPT", tmp_path)
    monkeypatch.setattr(guided, "MEMORY_BYTES", -(1 << 40))
    sent: list[Outcome] = []
    guided._Inputs(TARGET, SUBJECT, 1, SimpleNamespace(), sent.append).parse(b"valid")
    assert "the process has grown" in sent[0].findings[0].cause


def test_changes_come_from_atheris_and_from_the_other_fuzzer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = SimpleNamespace(Mutate=lambda data, longest: b"theirs")
    monkeypatch.setitem(sys.modules, "atheris", fake)
    inputs = guided._Inputs(TARGET, SUBJECT, 1, SimpleNamespace(), print)
    made = [inputs.change(b"reached new code" * 10, 100, seed) for seed in range(300)]
    assert 150 < made.count(b"theirs") < 270
    assert any(b"new code" in one for one in made)
    assert max(map(len, made)) <= 100
    assert made == [inputs.change(b"reached new code" * 10, 100, seed) for seed in range(300)]
