"""Random values are functions of the element: parallel calls do not change them.

This module is long because it checks every place in which a random op can be: branches, loops,
calls and nested datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.graph import determinism
from distributed_input.graph.definition import serialization
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.random.seeds import reseed

Data: TypeAlias = tf.data.Dataset
ROWS = 400


def repeatable(dataset: Data, epoch: int = 0, split: int = 0, seed: int = 1) -> Data:
    """Return the dataset of an epoch; fail if it has to run serially."""
    graph = reseed(serialize(dataset), seed, epoch, split)
    assert not determinism.make_repeatable(graph), determinism.order_dependent_ops(graph)
    options = tf.data.Options()
    options.deterministic = True
    options.threading.private_threadpool_size = 16
    return serialization.instantiate(graph, dataset.element_spec).with_options(options)


def values(dataset: Data, **arguments: Any) -> np.ndarray[Any, Any]:
    """Return the elements of an epoch as rows of numbers."""
    elements = repeatable(dataset, **arguments).as_numpy_iterator()
    rows = [[np.asarray(part).ravel() for part in tf.nest.flatten(it)] for it in elements]
    return np.array([np.concatenate(row) for row in rows], np.float64)


def mapped(function: Callable[..., Any], parallel: int | None = 16, rows: int = ROWS) -> Data:
    return Data.range(rows).map(function, num_parallel_calls=parallel)


def uniform(_: Any = None) -> tf.Tensor:
    return tf.random.uniform([], dtype=tf.float64)  # 52 bits: two draws are not equal by chance


def in_cond(row: tf.Tensor) -> tf.Tensor:
    return tf.cond(row % 2 == 0, uniform, lambda: uniform() + 1.0) % 1.0


def in_nested_cond(row: tf.Tensor) -> tf.Tensor:
    return tf.cond(row % 2 == 0, lambda: in_cond(row // 2), uniform)


def in_switch(row: tf.Tensor) -> tf.Tensor:
    return tf.switch_case(tf.cast(row % 3, tf.int32), [uniform, uniform, uniform])


def in_loop(_: tf.Tensor) -> tf.Tensor:
    drawn = tf.TensorArray(tf.float64, 3)
    return tf.while_loop(
        lambda i, _: i < 3,
        lambda i, drawn: (i + 1, drawn.write(i, uniform())),
        (0, drawn),
        parallel_iterations=3,
    )[1].stack()


def in_nested_loops(_: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(in_loop, tf.range(3), fn_output_signature=tf.float64)


@tf.function
def called(_: tf.Tensor) -> tf.Tensor:
    return uniform()


def in_functions(row: tf.Tensor) -> tuple[tf.Tensor, ...]:
    return called(row), called(row)


def shuffled(_: tf.Tensor) -> tf.Tensor:
    return tf.random.shuffle(tf.range(1000))[:1] / 1000


def several_shapes(row: tf.Tensor) -> tf.Tensor:
    shape = tf.stack([1 + row % 1, 2])
    return tf.random.uniform([2], dtype=tf.float64), tf.random.uniform(shape, dtype=tf.float64)


# Functions whose values are uniform between 0 and 1.
UNIFORM = {
    it.__name__: it
    for it in (
        uniform,
        in_cond,
        in_nested_cond,
        in_switch,
        in_loop,
        in_nested_loops,
        in_functions,
        shuffled,
        several_shapes,
    )
}


def from_generator() -> Callable[[tf.Tensor], Any]:
    generator = tf.random.Generator.from_seed(7)

    @tf.function
    def helper() -> tf.Tensor:
        return generator.uniform([], dtype=tf.float64)

    return lambda _: (
        generator.uniform([], dtype=tf.float64),
        helper(),
        helper(),
        generator.uniform([2], dtype=tf.float64),
    )


def generator_in_cond() -> Callable[[tf.Tensor], Any]:
    generator = tf.random.Generator.from_seed(7)
    return lambda row: tf.cond(
        row % 2 == 0,
        lambda: generator.uniform([], dtype=tf.float64),
        lambda: generator.uniform([], dtype=tf.float64),
    )


GENERATORS = {"generator": from_generator, "generator in cond": generator_in_cond}
CASES = {name: (lambda it=it: it) for name, it in UNIFORM.items()} | GENERATORS


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_do_not_depend_on_the_number_of_parallel_calls(name: str) -> None:
    function = CASES[name]()
    alone = values(mapped(function, None))
    for parallel in (1, 4, 64):
        assert np.array_equal(values(mapped(function, parallel)), alone)
    assert np.array_equal(values(mapped(CASES[name](), 4)), alone)  # another trace


@pytest.mark.parametrize("name", CASES)
def test_values_are_uniform_and_independent(name: str) -> None:
    dataset = mapped(CASES[name]())
    first = values(dataset)
    others = [values(dataset, epoch=1)]
    if name != "shuffled":  # without a shard, it may be what a later op selects from
        others.append(values(dataset, split=1))
    drawn = np.concatenate([first, *others], axis=1)
    assert len(np.unique(drawn)) == drawn.size or name == "shuffled"
    assert abs(drawn.mean() - 0.5) < 5 * np.sqrt(1 / 12 / drawn.size)
    assert abs(drawn.var() - 1 / 12) < 0.01
    # Elements, draws in an element, epochs and splits are not correlated.
    limit = 5 / np.sqrt(ROWS)
    between = np.corrcoef(drawn.T) - np.eye(drawn.shape[1])
    assert np.abs(between).max() < limit
    following = [np.corrcoef(column[1:], column[:-1])[0, 1] for column in drawn.T]
    assert np.abs(following).max() < limit


@pytest.mark.slow
@pytest.mark.parametrize("make", GENERATORS.values())
def test_splits_that_are_open_at_once_have_their_own_generators(make: Any) -> None:
    dataset = mapped(make(), parallel=None)
    alone = [values(dataset, split=split) for split in range(2)]
    opened = [iter(repeatable(dataset, split=split)) for split in range(2)]
    for row, pair in enumerate(zip(*opened, strict=True)):
        for split, element in enumerate(pair):
            drawn = [np.asarray(part).ravel() for part in tf.nest.flatten(element)]
            assert np.array_equal(np.concatenate(drawn), alone[split][row])


def test_distributions_stay_the_same() -> None:
    def draw(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return (
            tf.random.normal([50], 3.0, 2.0),
            tf.random.truncated_normal([50]),
            tf.cast(tf.random.uniform([50], -2, 3, tf.int64), tf.float32),
            tf.cast(tf.random.categorical(tf.math.log([[0.3, 0.7]]), 50), tf.float32),
            tf.random.gamma([50], tf.constant([2.0])),
            tf.random.poisson([50], tf.constant([4.0])),
            tf.raw_ops.ParameterizedTruncatedNormal(
                shape=[2, 25], means=[0.0, 10.0], stdevs=[1.0], minvals=[-1.0, 9.0], maxvals=[12.0]
            ),
        )

    expected = [(3, 4), (0, 0.774), (0, 2), (0.7, 0.21), (2, 2), (4, 4)]
    rows = values(mapped(draw))
    for i, (mean, variance) in enumerate(expected):
        drawn = rows[:, 50 * i : 50 * (i + 1)]
        assert drawn.mean() == pytest.approx(mean, abs=0.05)
        assert drawn.var() == pytest.approx(variance, rel=0.05)
    low, high = rows[:, 300:325], rows[:, 325:350]
    assert low.min() >= -1.0
    assert high.min() >= 9.0
    assert high.max() <= 12.0
    assert high.mean() - low.mean() == pytest.approx(10, abs=0.1)


def test_a_generator_draws_the_same_distributions() -> None:
    generator = tf.random.Generator.from_seed(3)

    def draw(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return (
            generator.normal([50], 3.0, 2.0),
            generator.uniform([50], -2, 3, tf.int64),
            generator.binomial([50], 10.0, 0.5),
        )

    rows = values(mapped(draw))
    for arguments in ({"epoch": 1}, {"split": 1}, {"seed": 2}):
        others = values(mapped(draw), **arguments)
        for i in range(3):
            columns = slice(50 * i, 50 * (i + 1))
            equal = (rows[:, columns] == others[:, columns]).mean()
            assert equal < 0.3  # about what numbers of a few values have by chance
    for i, (mean, variance) in enumerate([(3, 4), (0, 2), (5, 2.5)]):
        drawn = rows[:, 50 * i : 50 * (i + 1)]
        assert drawn.mean() == pytest.approx(mean, abs=0.05)
        assert drawn.var() == pytest.approx(variance, rel=0.05)


def image() -> tf.Tensor:
    return tf.reshape(tf.range(300.0), [10, 10, 3]) / 300


def image_ops(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
    flipped = tf.image.random_flip_left_right(tf.image.random_flip_up_down(image()))
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        [10, 10, 3],
        tf.zeros([1, 0, 4]),
        min_object_covered=0.1,
        use_image_if_no_bounding_boxes=True,
    )
    return (
        flipped,
        tf.image.random_crop(image(), [4, 4, 3]),
        tf.image.random_brightness(tf.image.random_contrast(image(), 0.5, 1.5), 0.5),
        tf.image.random_hue(tf.image.random_saturation(image(), 0.5, 1.5), 0.2),
        begin,
        size,
    )


def keras_layers() -> Callable[[tf.Tensor], tf.Tensor]:
    keras = pytest.importorskip("keras")
    layers = keras.Sequential(
        [
            keras.layers.RandomFlip(seed=1),
            keras.layers.RandomRotation(0.2, seed=2),
            keras.layers.RandomZoom(0.3, seed=3),
        ]
    )
    return lambda _: layers(image(), training=True)


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: image_ops, keras_layers])
def test_augmentations_of_images_differ_between_elements_and_repeat(make: Any) -> None:
    function = make()
    rows = values(mapped(function, 16, rows=60))
    assert np.array_equal(values(mapped(function, None, rows=60)), rows)
    assert np.array_equal(values(mapped(make(), 4, rows=60)), rows)
    assert len(np.unique(rows, axis=0)) == 60
    assert not (values(mapped(function, 16, rows=60), epoch=1) == rows).all(axis=1).any()
    assert not (values(mapped(function, 16, rows=60), split=1) == rows).all(axis=1).any()


NESTED: dict[str, Callable[[int | None], Data]] = {
    "map in a flat_map": lambda n: Data.range(20).flat_map(
        lambda _: Data.range(20).map(uniform, num_parallel_calls=n)
    ),
    "map in an interleave": lambda n: Data.range(20).interleave(
        lambda _: Data.range(20).map(in_cond, num_parallel_calls=n),
        cycle_length=8,
        num_parallel_calls=n,
    ),
    "draw in an interleave": lambda n: Data.range(20).interleave(
        lambda _: Data.from_tensors(uniform()).concatenate(Data.range(19).map(uniform)),
        cycle_length=8,
        num_parallel_calls=n,
    ),
    "repeated map": lambda n: Data.range(100).map(in_loop, num_parallel_calls=n).repeat(4),
    "map of a repeated input": lambda n: (
        Data.range(100).repeat(4).map(in_functions, num_parallel_calls=n)
    ),
    "filter": lambda n: (
        Data.range(2000)
        .map(lambda row: (uniform(), row), num_parallel_calls=n)
        .filter(lambda *_: in_cond(_[1]) < 0.5)
        .map(lambda drawn, _: drawn)
        .take(400)
    ),
    "filter in an interleave": lambda n: (
        Data.range(100)
        .interleave(
            lambda i: (
                Data.range(20)
                .filter(lambda _: uniform() < 0.5)
                .map(lambda row: tf.cast(row + 20 * i, tf.float64) + uniform())
            ),
            cycle_length=8,
            num_parallel_calls=n,
        )
        .take(400)
    ),
    "take_while": lambda n: (
        Data.range(100)
        .interleave(
            lambda _: Data.range(20).take_while(lambda _: uniform() < 0.9).map(uniform),
            cycle_length=8,
            num_parallel_calls=n,
        )
        .take(400)
    ),
    "map of a window": lambda n: (
        Data.range(400).window(2).flat_map(lambda window: window.map(uniform, num_parallel_calls=n))
    ),
    "map and batch": lambda n: Data.range(400).map(uniform, num_parallel_calls=n).batch(1),
    "two maps": lambda n: (
        Data.range(400)
        .map(lambda row: (row, uniform()), num_parallel_calls=n)
        .map(lambda _, drawn: (drawn, uniform()), num_parallel_calls=n)
    ),
    "zipped maps": lambda n: Data.zip(
        (mapped(uniform, n), Data.range(ROWS).map(in_cond, num_parallel_calls=n))
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_each_element_of_nested_and_repeated_datasets_has_its_own_values(name: str) -> None:
    rows = values(NESTED[name](8))
    assert len(rows) == 400
    assert len(np.unique(rows)) == rows.size
    assert np.array_equal(values(NESTED[name](None)), rows)
    assert not np.isin(values(NESTED[name](8), epoch=1), rows).any()


def test_ops_with_equal_seeds_draw_equal_values() -> None:
    def seeded(_: tf.Tensor) -> tf.Tensor:
        return tf.random.uniform([], seed=5)

    both = values(Data.zip((mapped(seeded), mapped(lambda row: (in_cond(row), seeded(row))))))
    assert np.array_equal(both[:, 0], both[:, 2])
    assert len(np.unique(both[:, 0])) == ROWS


def test_random_values_before_a_file_cache_are_the_same_in_all_epochs(tmp_path: Any) -> None:
    dataset = mapped(in_cond).cache(str(tmp_path / "kept")).take(0)
    uncached = mapped(in_cond).cache(str(tmp_path / "other"))
    assert len(values(dataset)) == 0
    graphs = [reseed(serialize(uncached), 1, epoch, 0) for epoch in (0, 1)]
    for graph in graphs:
        determinism.make_repeatable(graph)
    assert graphs[0] == graphs[1]


def test_python_functions_run_in_parallel() -> None:
    import threading

    together = threading.Barrier(8, timeout=60)

    def meet(row: Any) -> Any:
        together.wait()  # until eight calls run at once
        return row

    dataset = Data.range(16).map(
        lambda row: (tf.numpy_function(meet, [row], tf.int64), uniform()), num_parallel_calls=8
    )
    assert [row for row, _ in repeatable(dataset)] == list(range(16))


def counted(parallel: int | None) -> Iterator[Any]:
    count = tf.Variable(0, dtype=tf.int64)
    dataset = Data.range(300).map(lambda _: count.assign_add(1), num_parallel_calls=parallel)
    graph = reseed(serialize(dataset), 1, 0, 0)
    assert determinism.make_repeatable(graph)
    instance = serialization.instantiate(graph, dataset.element_spec)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 16
    return determinism.run_serially(instance).with_options(options).as_numpy_iterator()


def test_functions_that_change_a_variable_run_serially() -> None:
    assert list(counted(64)) == list(range(1, 301))


def test_a_generator_that_elements_reset_follows_them() -> None:
    generator = tf.random.Generator.from_seed(3)

    def draw(row: tf.Tensor) -> tf.Tensor:
        generator.reset_from_seed(row % 3)
        return generator.binomial([4], 1e6, 0.5)

    dataset = Data.range(9).map(draw, num_parallel_calls=4)
    graph = reseed(serialize(dataset), 1, 0, 0)
    assert determinism.make_repeatable(graph)
    instance = serialization.instantiate(graph, dataset.element_spec)
    rows = np.array([row.numpy() for row in determinism.run_serially(instance)])
    assert np.array_equal(rows[:3], rows[3:6])
    assert len(np.unique(rows[:3], axis=0)) == 3


def test_a_variable_that_counts_elements_is_not_a_generator() -> None:
    state = tf.Variable([3, 0], dtype=tf.int64)

    def draw(row: tf.Tensor) -> tf.Tensor:
        drawn = tf.random.stateless_uniform([], state.read_value())
        with tf.control_dependencies([drawn]):
            state.assign(tf.stack([3, row]))
        return drawn

    graph = reseed(serialize(Data.range(9).map(draw, num_parallel_calls=4)), 1, 0, 0)
    assert determinism.make_repeatable(graph)
    assert "AssignVariableOp" in {it.op for it in determinism.order_dependent_ops(graph)}


def test_a_dataset_without_random_ops_does_not_change() -> None:
    graph = reseed(serialize(Data.range(9).shuffle(3).map(lambda x: x + 1)), 1, 0, 0)
    before = graph.SerializeToString(deterministic=True)
    assert not determinism.make_repeatable(graph)
    assert graph.SerializeToString(deterministic=True) == before
