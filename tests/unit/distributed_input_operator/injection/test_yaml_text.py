"""The YAML writer. A test in tests/operator reads its text with kubectl."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from distributed_input.api.resource.yaml_lines import documents
from distributed_input_operator.injection.yaml_text import dump_yaml

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
WORDS = [
    *"y Y yes No on OFF true null ~ Null = << - ? : #x @x !x &x *x %x |x >x 1 01 0o7 0x1F".split(),
    *"1e3 .5 1_000 1:30 2020-01-01 .inf -.NaN 0b1 +1 a:b a: {} [] {a} '' it's é".split(),
    *("", " a", "a ", "a: b", "x #y", "l\nm\n", "l \n m", '{"a": "b"}', '"', "\x07"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(WORDS) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(WORDS), VALUES, min_size=1), min_size=1, max_size=2)
)
@example([{"y": {'"\x85': None}}])  # \x85 is a line break in YAML 1.1
@example([{"y": {"\n\x85": "a\n\r\u2028\u2029"}}])
def test_written_values_can_be_read_again(values: list[Any]) -> None:
    text = dump_yaml(values)
    assert list(yaml.safe_load_all(text)) == values
    assert [one.value for one in documents(text)] == values


def test_words_that_are_not_strings_in_every_version_of_yaml_are_quoted() -> None:
    assert dump_yaml([["y", "Off", "NULL", "plain"]]) == '---\n- "y"\n- "Off"\n- "NULL"\n- plain\n'
