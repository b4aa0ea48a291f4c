"""The YAML parser: values as kubectl reads them, and the line of every field."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.resource.yaml_lines import YamlError, documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-01", "2020-01-01"),
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("1e-3", 0.001),
        ("1.5e3", 1500.0),
        ("1E6", 1e6),
        ("-.5", -0.5),
        ("12", 12),
        ("-3", -3),
        ("0x10", 16),
        ("0b11", 3),
        ("1_000", 1000),
        ("1.0", 1.0),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("-", [None]),
        ("yes", True),
        ("~", None),
        ("'1'", "1"),
    ],
)
def test_plain_values_are_read_as_kubectl_reads_them(text: str, value: Any):
    (document,) = documents(f"a: {text}" if text != "-" else "a:\n- ")
    assert document.value == {"a": value}
    assert type(document.value["a"]) is type(value)


def test_every_field_has_the_line_of_its_key():
    (first, second) = documents("a:\n  b: 1\n  c: [x,\n    {d: 2}]\n---\ne: 1\n---\n")
    assert first.lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 3,
        ("a", "c", 1): 4,
        ("a", "c", 1, "d"): 4,
    }
    assert second.lines == {(): 6, ("e",): 6}
    assert first.line(("a", "b", "not", "there")) == 2
    assert first.line(("nowhere",)) == 1


def test_merged_and_shared_values_are_read():
    (document,) = documents("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\ne: *x\n")
    assert document.value["d"] == {"b": 1, "c": 3}
    assert document.value["e"] == {"b": 1, "c": 2}
    assert document.line(("d", "b")) == 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3", 3, "a: occurs twice, first on line 1"),
        ("a:\n  b: 1\n  b: 1", 3, "a.b: occurs twice"),
        ("x: 1\non: 2", 2, "the key on is not text: put it in quotes"),
        ("? [1]\n: 2", 1, "is not text"),
        ("a: &a\n  b: *a", 1, "contains itself"),
        ("a: *b", 1, "undefined alias"),
        ("a: 'b", 1, "is not YAML"),
        ("a: \x00", None, "is not YAML"),
        ("a: !!int b", None, "is not YAML"),
        ("a: !!bool b", None, "is not YAML"),
        ("a: !!timestamp b", None, "is not YAML"),
        pytest.param("[" * 5000, None, "is not YAML", id="deep"),
    ],
)
def test_yaml_that_kubectl_refuses_is_an_error(text: str, line: int | None, message: str):
    with pytest.raises(YamlError) as caught:
        documents(text)
    assert message in str(caught.value)
    assert caught.value.line == line
