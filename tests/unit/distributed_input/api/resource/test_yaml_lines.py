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
        ("a:\n  <<: {b: 1, b: 1}", 2, "a.<<.b: occurs twice"),
        ("x: 1\non: 2", 2, "the key on is not text: put it in quotes"),
        ("? [1]\n: 2", 1, "is not text"),
        ("a: &a\n  b: *a", 1, "contains itself"),
        ("a: &a\n  <<: *a", 1, "contains itself"),
        ("a:\n  <<: {b: 1,\n    1: 2}", 3, "the key 1 is not text"),
        ("a: *b", 1, "undefined alias"),
        ("a: 'b", 1, "is not YAML"),
        ("a:\n\tb: 1", 2, "indent with spaces, not tabs"),
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


def test_aliases_that_make_billions_of_fields_are_refused() -> None:
    text = "a0: &a0 [x]\n" + "".join(
        f"a{level}: &a{level} [{', '.join(10 * [f'*a{level - 1}'])}]\n" for level in range(1, 12)
    )
    with pytest.raises(YamlError, match="more than 100000 fields: use fewer aliases"):
        documents(text)


def nested_merges(first: str, merge: str, levels: int) -> str:
    """Return a document whose mappings each merge the one before ten times.

    Args:
        first: the first mapping.
        merge: the content of a mapping, with ALIAS for the mapping before.
        levels: number of mappings.
    """
    return f"a0: &a0 {first}\n" + "".join(
        f"a{level}: &a{level} {{{merge.replace('ALIAS', f'*a{level - 1}')}}}\n"
        for level in range(1, levels)
    )


@pytest.mark.parametrize("first", ["{x: 1}", "{}"])
@pytest.mark.parametrize(
    "merge",
    [
        f"<<: [{', '.join(['ALIAS'] * 10)}]",
        ", ".join(["<<: ALIAS"] * 10),
        f"<<: {{{', '.join(f'k{key}: ALIAS' for key in range(10))}}}",
    ],
    ids=["list", "keys", "values"],
)
def test_merge_keys_that_make_billions_of_fields_are_refused(first: str, merge: str) -> None:
    assert len(documents(nested_merges(first, merge, 3))) == 1
    # Six levels: if they are not refused, this test is slow, but ends.
    with pytest.raises(YamlError, match="more than 100000 fields: use fewer aliases"):
        documents(nested_merges(first, merge, 6))


def test_a_quoted_key_keeps_its_line_next_to_a_merge_key() -> None:
    (document,) = documents("a: &a {b: 1}\nc:\n  '<<': 2\n  <<: *a\n")
    assert document.value["c"] == {"<<": 2, "b": 1}
    assert document.line(("c", "<<")) == 3
