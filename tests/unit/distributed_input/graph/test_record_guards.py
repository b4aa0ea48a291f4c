"""A guarded graph gives the elements of `ignore_errors` behind each map, and reports the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.graph import determinism, record_guards
from distributed_input.graph.definition import canonical, serialization
from distributed_input.graph.random import seeds
from distributed_input.graph.record_guards import CheckMap, Guards

Dataset = tf.data.Dataset


def _inverse(number: tf.Tensor) -> tf.Tensor:
    return tf.debugging.check_numerics(1.0 / tf.cast(number % 7 - 3, tf.float32), "zero")


def _twice(ignore: Callable[[Dataset], Dataset]) -> Dataset:
    first = ignore(Dataset.range(40).map(_inverse, num_parallel_calls=3))
    return ignore(first.map(lambda value: tf.debugging.check_numerics(1 / (value - 1), "one")))


def _in_function(ignore: Callable[[Dataset], Dataset]) -> Dataset:
    def read(start: tf.Tensor) -> Dataset:
        numbers = Dataset.range(10).map(lambda number: number + start)
        return ignore(numbers.map(_inverse, num_parallel_calls=2))

    return Dataset.range(5).interleave(read, cycle_length=2)


def _shuffled(ignore: Callable[[Dataset], Dataset]) -> Dataset:
    rows = ignore(Dataset.range(60).map(_inverse))
    return rows.shuffle(10, seed=1, reshuffle_each_iteration=False).batch(4)


@pytest.mark.parametrize("build", [_twice, _in_function, _shuffled])
def test_exactly_the_failed_elements_are_missing(build: Callable[..., Dataset]) -> None:
    found: list[tuple[str, int]] = []
    elements = _elements(build(lambda dataset: dataset), _skipping(found))
    expected = [one.tolist() for one in build(Dataset.ignore_errors).as_numpy_iterator()]
    assert elements == expected
    assert len(found) == len(set(found)) > 0


def test_an_error_of_the_check_is_raised() -> None:
    def refusing(_guards: Guards) -> CheckMap:
        def check(*_: Any) -> bool:
            raise ConnectionError("no storage")

        return check

    with pytest.raises(tf.errors.OpError, match="ConnectionError: no storage"):
        _elements(Dataset.range(9).map(_inverse), refusing)


def test_an_element_that_does_not_fail_again_stays() -> None:
    calls: list[int] = []

    def unsteady(number: int) -> int:
        calls.append(number)
        if calls == [0, 1, 2]:
            raise ValueError("once")
        return number

    dataset = Dataset.range(4).map(lambda one: tf.numpy_function(unsteady, [one], tf.int64))
    found: list[tuple[str, int]] = []
    assert _elements(dataset, _skipping(found)) == [0, 1, 2, 3]
    assert not found


def test_an_excluded_element_is_checked_and_its_function_does_not_run() -> None:
    calls: list[int] = []

    def counted(number: int) -> int:
        calls.append(int(number))
        return number

    def excluding(_guards: Guards) -> CheckMap:
        return lambda _dataset, _name, index, _strings: int(index) == 5  # 2 is excluded

    dataset = Dataset.range(9).map(
        lambda one: tf.numpy_function(counted, [one], tf.int64), num_parallel_calls=3
    )
    graph = canonical.serialize(dataset)
    (guarded,) = record_guards.guard(graph, excluding)[1].maps.values()
    excluded = {guarded.function: [2, 5]}
    assert _elements(dataset, excluding, excluded) == [0, 1, 3, 4, 5, 6, 7, 8]
    assert 2 not in calls


@pytest.mark.parametrize("calls", [None, 2])
def test_maps_with_random_values_have_guards_and_keep_their_values(calls: int | None) -> None:
    def noisy(number: tf.Tensor) -> tf.Tensor:
        return _inverse(number) + tf.random.uniform([])

    dataset = Dataset.range(40).map(noisy, num_parallel_calls=calls)
    graph = seeds.reseed(canonical.serialize(dataset), 3, 0, 0)
    assert not determinism.make_repeatable(graph)
    expected = serialization.instantiate(graph, dataset.element_spec).ignore_errors()
    guarded, guards = record_guards.guard(graph, _skipping([]))
    assert len(guards.maps) == 1
    made = serialization.instantiate(guarded, dataset.element_spec)
    assert list(made.as_numpy_iterator()) == list(expected.as_numpy_iterator())


def test_maps_of_batches_have_no_guard() -> None:
    dataset = Dataset.range(9).batch(3).map(_inverse)
    _, guards = record_guards.guard(canonical.serialize(dataset), _skipping([]))
    assert not guards.maps


def _skipping(found: list[tuple[str, int]]) -> Callable[[Guards], CheckMap]:
    def check_map(guards: Guards) -> CheckMap:
        def check(dataset: Any, name: Any, index: Any, _strings: Sequence[Any]) -> bool:
            of = guards.maps[name.numpy().decode()]
            try:
                tf.raw_ops.DatasetToSingleElement(
                    dataset=dataset, output_types=of.types, output_shapes=of.shapes
                )
            except tf.errors.InvalidArgumentError:
                found.append((name.numpy().decode() + str(len(found)), int(index)))
                return False
            return True

        return check

    return check_map


def _elements(
    dataset: Dataset,
    check_map: Callable[[Guards], CheckMap],
    excluded: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> list[Any]:
    graph, guards = record_guards.guard(canonical.serialize(dataset), check_map, excluded=excluded)
    made = serialization.instantiate(graph, dataset.element_spec)
    elements = [one.tolist() for one in made.as_numpy_iterator()]
    del guards  # its functions must exist until here
    return elements
