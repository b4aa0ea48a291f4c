"""Conversion between tf.data datasets and GraphDefs.

The GraphDef of a dataset is the one that TensorFlow creates: constants and dataset ops, a library
of functions, and a `_Retval` node whose input is the dataset.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import GraphDef

# Ops that change variables. Variables are shared by name, so every instance needs its own names.
_MUTATES = frozenset(
    "AssignVariableOp AssignAddVariableOp AssignSubVariableOp ResourceScatterUpdate"
    " ResourceScatterAdd RngSkip RngReadAndSkip StatefulUniform StatefulUniformInt"
    " StatefulUniformFullInt StatefulStandardNormalV2 StatefulTruncatedNormal"
    " StatefulRandomBinomial".split()
)
_instances = itertools.count()


def serialize_raw(dataset: tf.data.Dataset) -> GraphDef:
    """Return TensorFlow's graph of a dataset, with lookup tables and variables by value.

    Raises:
      DatasetFnError: TensorFlow cannot serialize it.
    """
    policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    try:
        # tf.data service uses this method. The public functions reject external state.
        as_graph = dataset._as_serialized_graph  # noqa: SLF001
        graph = as_graph(strip_device_assignment=True, external_state_policy=policy)
    except tf.errors.OpError as error:
        raise DatasetFnError(
            f"this dataset cannot be sent to workers: {error.message}; move it to an entry point"
            " (package.module:function) in the workers' image"
        ) from error
    return tf.compat.v1.GraphDef.FromString(graph.numpy())


def instantiate(graph_def: GraphDef, element_spec: Any) -> tf.data.Dataset:
    """Return a dataset of a graph; it shares no state with other datasets of this process.

    Its functions are freed with it.
    """
    graph_def, private = _with_private_variables(graph_def)
    with tf.device("CPU:0"):
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph_def.SerializeToString())
    dataset = tf.data.experimental.from_variant(variant, element_spec)
    if private:
        weakref.finalize(dataset, _destroy_variables, private).atexit = False
    return dataset


def derive(
    dataset: tf.data.Dataset, op: Callable[..., tf.Tensor], spec: Any = None, **arguments: Any
) -> tf.data.Dataset:
    """Return the dataset that a raw op makes of another one.

    The other one lives as long: it has the resources of its graph, such as Python functions. `spec`
    has the nested TypeSpecs of the elements; None: those of the input.
    """
    structure = dataset._flat_structure  # noqa: SLF001 - TensorFlow's own datasets use it
    variant = op(
        input_dataset=tf.data.experimental.to_variant(dataset), **{**structure, **arguments}
    )
    out = tf.data.experimental.from_variant(variant, spec or dataset.element_spec)
    out._of = dataset  # noqa: SLF001 - an attribute that we add
    return out


def _with_private_variables(graph_def: GraphDef) -> tuple[GraphDef, list[tuple[str, int, Any]]]:
    """Return the graph with private variables, and these variables.

    All variables are private if the functions change any. Otherwise, those with the states of
    generators are private: each split has its own.
    """
    changed = any(node.op in _MUTATES for f in graph_def.library.function for node in f.node_def)
    private = [
        index
        for index, node in enumerate(graph_def.node)
        if node.op == "VarHandleOp" and (changed or node_defs.PRIVATE in node.attr)
    ]
    if not private:
        return graph_def, []
    instance = next(_instances)
    out = []
    graph_def = node_defs.copy_of(graph_def)
    for index in private:
        node = graph_def.node[index]
        name = f"{node.attr['shared_name'].s.decode()}/{instance}"
        node.attr["shared_name"].s = name.encode()
        shape = tf.TensorShape(node.attr["shape"].shape)
        out.append((name, node.attr["dtype"].type, shape))
    return graph_def, out


def _destroy_variables(variables: list[tuple[str, int, Any]]) -> None:
    for name, dtype, shape in variables:
        with tf.device("CPU:0"):
            handle = tf.raw_ops.VarHandleOp(shared_name=name, dtype=dtype, shape=shape)
            tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
