"""A function gets one more argument, and everything that is numbered moves with the others."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distributed_input.graph.random.function_bodies import FunctionBody, append_input, number_pair


def function_of() -> tf.compat.v1.NodeDef:
    @tf.function(input_signature=[tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64)])
    def add(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        return first + second

    function = add.get_concrete_function().function_def
    function.arg_attr[1].attr["mark"].s = b"second"
    function.resource_arg_unique_id[1] = 7
    return function


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_key_is_inserted_and_later_arguments_keep_their_attributes(index: int) -> None:
    function = function_of()
    before = function.SerializeToString(deterministic=True)
    body = FunctionBody(function, "copy", index)
    names = [argument.name for argument in body.function.signature.input_arg]
    assert names.index(body.key) == index
    assert [name for name in names if name != body.key] == ["first", "second"]
    second = names.index("second")
    marked = [at for at, it in body.function.arg_attr.items() if it.attr["mark"].s]
    assert marked == [second]
    assert dict(body.function.resource_arg_unique_id) == {second: 7}
    assert function.SerializeToString(deterministic=True) == before


def test_added_nodes_have_unique_names() -> None:
    body = FunctionBody(function_of(), "copy", 0)
    pairs = {body.add_const("pair", [1, 2]) for _ in range(3)}
    assert len(pairs) == 3
    names = [node.name for node in body.function.node_def]
    assert len(set(names)) == len(names)


def test_a_redirected_reference_is_replaced_in_nodes_and_results() -> None:
    body = FunctionBody(function_of(), "copy", 0)
    pair = body.add_const("pair", [1, 2])
    (result,) = body.function.ret.values()
    kept = body.add("Identity", "kept", [result], {"T": tf.int64.as_datatype_enum})
    moved = body.add("Identity", "moved", [result], {"T": tf.int64.as_datatype_enum})
    body.redirect(result, pair, but=kept.name)
    assert list(body.function.ret.values()) == [pair]
    assert (kept.input[:], moved.input[:]) == ([result], [pair])


def test_an_input_is_added_before_control_inputs() -> None:
    node = tf.compat.v1.NodeDef(input=["a", "^b"])
    append_input(node, "c")
    assert node.input[:] == ["a", "c", "^b"]


def test_number_pairs_are_different_for_different_values() -> None:
    pairs = [number_pair("draw", i) for i in range(1000)]
    assert len({number for pair in pairs for number in pair}) == 2000
    assert all(0 <= number < 1 << 62 for pair in pairs for number in pair)
