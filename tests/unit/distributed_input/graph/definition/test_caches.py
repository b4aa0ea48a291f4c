"""Caches to files: each dataset has its own files, and epochs agree on what they contain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.graph.definition import caches
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.random.seeds import reseed
from tests.unit.distributed_input.graph.graphcases import epoch_of, random_number, run

Data = tf.data.Dataset


def renamed(dataset: Data, seed: int = 1, epoch: int = 0) -> list[tuple[str, str]]:
    """Return the file and the fingerprint of each cache of a dataset."""
    found: list[tuple[str, str]] = []

    def path(file: str, fingerprint: str) -> str:
        found.append((file, fingerprint))
        return file

    caches.rename(reseed(serialize(dataset), seed, epoch, 0), path)
    return found


def test_a_cache_reads_and_writes_the_new_files(tmp_path: Path) -> None:
    dataset = Data.range(5).cache(str(tmp_path / "old")).batch(2)
    graph_def = serialize(dataset)
    caches.rename(graph_def, lambda file, _: f"{file}-new")
    run(graph_def, dataset.element_spec)
    assert {file.name.split(".")[0] for file in tmp_path.iterdir()} == {"old-new"}


def test_equal_datasets_have_equal_fingerprints() -> None:
    def dataset(rows: int = 9, add: int = 1, file: str = "f") -> Data:
        return Data.range(rows).shuffle(9).map(lambda x: (x + add, random_number())).cache(file)

    ((file, first),) = renamed(dataset())
    assert file == "f"
    assert renamed(dataset()) == renamed(dataset().batch(2)) == [("f", first)]
    assert renamed(dataset(), epoch=3) == [("f", first)]
    assert renamed(dataset(8))[0][1] != first
    assert renamed(dataset(add=2))[0][1] != first
    assert renamed(dataset(), seed=2)[0][1] != first


def test_a_python_function_has_the_same_fingerprint_when_it_is_traced_again() -> None:
    def dataset() -> Data:
        def double(x: tf.Tensor) -> tf.Tensor:
            return tf.numpy_function(lambda y: 2 * y, [x], tf.int64)

        return Data.range(3).map(double).cache("f")

    first, second = dataset(), dataset()
    assert renamed(first) == renamed(second)


def drawn(generator: tf.random.Generator) -> Callable[[Any], Any]:
    return lambda _: generator.uniform([], 0, 1 << 20, tf.int32)


@pytest.mark.parametrize(
    "random",
    [
        lambda: Data.range(20).shuffle(20),
        lambda: Data.range(20).map(lambda _: random_number()),
        lambda: Data.range(3).interleave(lambda _: Data.range(9).shuffle(9)),
        lambda: Data.range(9).map(drawn(tf.random.Generator.from_seed(7))),
    ],
    ids=["shuffle", "map", "nested", "generator"],
)
def test_what_is_cached_is_the_same_in_all_epochs(
    random: Callable[[], Data], tmp_path: Path
) -> None:
    """A later epoch may read what the first one wrote, or may have to compute it again."""

    def rows(epoch: int, seed: int = 1) -> list[Any]:
        file = str(tmp_path / f"{epoch}-{seed}")
        return epoch_of(random().cache(file).map(lambda x: (x, random_number())), seed, epoch)

    first, second = rows(0), rows(1)
    assert [row for row, _ in first] == [row for row, _ in second]
    assert [drawn for _, drawn in first] != [drawn for _, drawn in second]
    assert [row for row, _ in rows(0, seed=2)] != [row for row, _ in first]


def test_a_cache_to_files_in_a_function_is_rejected() -> None:
    def nested(file: str, *, computed: bool = False) -> Data:
        def inner(x: tf.Tensor) -> Data:
            name = tf.strings.join([file, tf.strings.as_string(x)]) if computed else file
            return Data.range(3).cache(name)

        return Data.range(2).flat_map(inner)

    caches.check(serialize(nested("")))
    for dataset in (nested("f"), nested("f", computed=True)):
        with pytest.raises(ConfigError, match=r"move cache\(filename\) behind that function"):
            caches.check(serialize(dataset))
