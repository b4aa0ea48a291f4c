"""Replaces a random op with a stateless op that draws from the same distribution.

A stateless op is a function of its inputs and a key: two int64 numbers. The op's own seeds are
combined with the key of the element, so ops with equal seeds stay equal.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import stateless_random_ops

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import FunctionDef, NodeDef

# The stateless op, the index of the key in its inputs, and the attributes with other names.
_DIRECT: dict[str, tuple[str, int, dict[str, str]]] = {
    "RandomUniform": ("StatelessRandomUniform", 1, {}),
    "RandomUniformInt": ("StatelessRandomUniformInt", 1, {"Tout": "dtype"}),
    "RandomStandardNormal": ("StatelessRandomNormal", 1, {}),
    "TruncatedNormal": ("StatelessTruncatedNormal", 1, {}),
    "Multinomial": ("StatelessMultinomial", 2, {}),
    "SampleDistortedBoundingBoxV2": ("StatelessSampleDistortedBoundingBox", 3, {}),
}
_PREFIX = "distributed_input_stateless_"


def _gamma(shape: tf.Tensor, alpha: tf.Tensor, key: tf.Tensor, _: Any) -> tf.Tensor:
    whole = tf.concat([tf.cast(shape, tf.int32), tf.shape(alpha)], 0)
    return tf.random.stateless_gamma(whole, key, alpha, dtype=alpha.dtype)


def _poisson(shape: tf.Tensor, rate: tf.Tensor, key: tf.Tensor, dtype: Any) -> tf.Tensor:
    whole = tf.concat([tf.cast(shape, tf.int32), tf.shape(rate)], 0)
    return tf.random.stateless_poisson(whole, key, rate, dtype=dtype)


def _binomial(
    _resource: Any,
    _algorithm: Any,
    shape: tf.Tensor,
    counts: tf.Tensor,
    probs: tf.Tensor,
    key: tf.Tensor,
    dtype: Any,
) -> tf.Tensor:
    return tf.random.stateless_binomial(shape, key, counts, probs, output_dtype=dtype)


def _truncated(
    shape: tf.Tensor,
    means: tf.Tensor,
    stddevs: tf.Tensor,
    minvals: tf.Tensor,
    maxvals: tf.Tensor,
    key: tf.Tensor,
    _: Any,
) -> tf.Tensor:
    # The stateful op aligns its parameters with the first dimension, the stateless one with the
    # last.
    rows, size = shape[0], tf.reduce_prod(shape[1:])
    parameters = [
        tf.broadcast_to(tf.reshape(value, [-1]), [rows])
        for value in (means, stddevs, minvals, maxvals)
    ]
    draw = stateless_random_ops.stateless_parameterized_truncated_normal
    return tf.reshape(tf.transpose(draw([size, rows], key, *parameters)), shape)


def _shuffle(value: tf.Tensor, key: tf.Tensor, _: Any) -> tf.Tensor:
    rows = tf.shape(value)[:1]
    limits = {"minval": None, "maxval": None, "dtype": tf.int64}
    numbers = tf.random.stateless_uniform(rows, key, **limits)
    return tf.gather(value, tf.argsort(numbers, stable=True))


# The function, the attribute with the type of each input or the type itself, and the attribute
# with the type of the output.
_Composite = tuple[Callable[..., tf.Tensor], tuple[Any, ...], str]
_COMPOSITE: dict[str, _Composite] = {
    "RandomShuffle": (_shuffle, ("T",), "T"),
    "RandomGamma": (_gamma, ("S", "T"), "T"),
    "RandomPoisson": (_poisson, ("S", "dtype"), "dtype"),
    "RandomPoissonV2": (_poisson, ("S", "R"), "dtype"),
    "StatefulRandomBinomial": (_binomial, (tf.resource, tf.int64, "S", "T", "T"), "dtype"),
    "ParameterizedTruncatedNormal": (
        _truncated,
        ("T", "dtype", "dtype", "dtype", "dtype"),
        "dtype",
    ),
}

REPLACED = frozenset((*_DIRECT, *_COMPOSITE))
"""The random ops that have a stateless op."""


def replace(node: NodeDef, key: str) -> FunctionDef | None:
    """Replace a random op in a function, in place; its outputs keep their names.

    `key` is the input with the key of the op. Return the function that the node then calls, which
    belongs into the library; or None.
    """
    inputs, controls = node_defs.data_inputs(node), node_defs.control_inputs(node)
    function = None
    if node.op in _DIRECT:
        node.op, index, renamed = _DIRECT[node.op]
        for old, new in renamed.items():
            node.attr[new].CopyFrom(node.attr.pop(old))
        node.attr["Tseed"].type = tf.int64.as_datatype_enum
    else:
        function, index = _call_composite(node), len(inputs)
    node.attr.pop("seed", None)
    node.attr.pop("seed2", None)
    inputs.insert(index, key)
    node.input[:] = inputs + controls
    return function


def _call_composite(node: NodeDef) -> FunctionDef:
    """Turn a node into a call of a traced function, and return the function."""
    _, inputs, output = _COMPOSITE[node.op]
    types = tuple(
        node.attr[it].type if isinstance(it, str) else it.as_datatype_enum for it in inputs
    )
    function = _traced(node.op, types, node.attr[output].type)
    node.op = "PartitionedCall"
    out = node.attr[output].type
    kept = {name: value for name, value in node.attr.items() if name.startswith("_")}
    node.attr.clear()
    for name, value in kept.items():
        node.attr[name].CopyFrom(value)
    node.attr["f"].func.name = function.signature.name
    node.attr["Tin"].list.type.extend([*types, tf.int64.as_datatype_enum])
    node.attr["Tout"].list.type.append(out)
    return function


@functools.lru_cache(maxsize=256)
def _traced(op: str, types: tuple[int, ...], output: int) -> FunctionDef:
    """Return the function of a composite for given types of its inputs and output."""
    call = _COMPOSITE[op][0]

    def draw(*args: tf.Tensor) -> tf.Tensor:
        return call(*args, tf.dtypes.as_dtype(output))

    specs = [tf.TensorSpec(None, tf.dtypes.as_dtype(it)) for it in types]
    specs.append(tf.TensorSpec([2], tf.int64))
    with tf.init_scope(), tf.device(None):
        traced = tf.function(draw, autograph=False).get_concrete_function(*specs)
    function = copy.deepcopy(traced.function_def)
    function.signature.name = _PREFIX + "_".join((op, *(str(it) for it in (*types, output))))
    return function
