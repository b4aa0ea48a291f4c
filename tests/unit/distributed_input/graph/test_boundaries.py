"""A boundary changes nothing, and what is before it is found whatever follows."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from distributed_input.graph import boundaries
from distributed_input.graph.analysis.files_read import UnknownFilesError
from distributed_input.graph.boundaries import boundary
from distributed_input.graph.definition import node_defs, serialization
from distributed_input.graph.definition.canonical import serialize


def rows(factor: int = 2) -> tf.data.Dataset:
    return tf.data.Dataset.range(6).map(lambda x: x * factor)


def marked(factor: int = 2) -> tf.data.Dataset:
    return rows(factor).apply(boundary())


def before(dataset: tf.data.Dataset) -> bytes:
    return node_defs.to_bytes(boundaries.before(serialize(dataset)))


def test_a_boundary_keeps_the_elements() -> None:
    assert list(marked().as_numpy_iterator()) == list(rows().as_numpy_iterator())
    assert int(marked().cardinality()) == 6
    assert marked().element_spec == rows().element_spec
    assert boundaries.has_boundary(serialize(marked()))
    assert not boundaries.has_boundary(serialize(rows().with_options(tf.data.Options())))


def test_what_is_before_it_does_not_depend_on_what_follows() -> None:
    alone = before(marked())
    assert before(marked().shuffle(3).map(lambda x: x + 1).batch(2).prefetch(1)) == alone
    assert before(tf.data.Dataset.zip(tf.data.Dataset.range(2), marked())) == alone
    assert before(marked(3)) != alone
    assert node_defs.to_bytes(serialize(rows())) == alone


def test_the_last_boundary_of_a_chain_counts() -> None:
    twice = marked().map(lambda x: x + 1).apply(boundary())
    assert before(twice) == node_defs.to_bytes(serialize(marked().map(lambda x: x + 1)))


def test_copied_options_are_no_boundary() -> None:
    options = tf.data.Options()
    options.deterministic = False
    both = marked().options().merge(options)
    assert before(marked().shuffle(3).with_options(both)) == before(marked())


@pytest.mark.parametrize(
    ("dataset", "cause"),
    [
        (lambda: tf.data.Dataset.zip(marked(), marked(3)), "several branches"),
        (lambda: rows().flat_map(lambda _: marked()), "in a function"),
        (lambda: marked().batch(1).shard(2, 0).batch(2), "a shard behind"),
    ],
)
def test_a_boundary_that_is_not_certain(dataset: object, cause: str) -> None:
    assert callable(dataset)
    with pytest.raises(UnknownFilesError, match=cause):
        before(dataset())


def test_elements_are_written_and_read(tmp_path: Path) -> None:
    dataset = marked().map(lambda x: x + 1)
    path = str(tmp_path / "rows")
    written = boundaries.replace(serialize(dataset), path)
    spec = dataset.element_spec
    expected = list(dataset.as_numpy_iterator())
    assert list(serialization.instantiate(written, spec).as_numpy_iterator()) == expected
    assert {file.suffix for file in tmp_path.iterdir()} == {".index", ".data-00000-of-00001"}
    read = boundaries.replace(serialize(marked(5).map(lambda x: x + 1)), path)
    assert list(serialization.instantiate(read, spec).as_numpy_iterator()) == expected
