"""Lookup tables in graphs, stored by value.

TensorFlow stores entries in the order of its hashes, which may differ between runs. It stores
vocabulary files by name, and a worker may not have the file.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef

_FROM_FILE = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")
_tables = itertools.count()


def inline_tables(graph_def: GraphDef) -> None:
    """Fill all tables of a graph from constants sorted by key, in place.

    This reads the vocabulary files, in the trainer.

    Raises:
      DatasetFnError: a vocabulary file cannot be read.
    """
    nodes = node_defs.by_name(graph_def.node)
    for node in list(graph_def.node):
        inputs = [nodes[node_defs.source_of(name)] for name in node_defs.data_inputs(node)]
        if node.op in _FROM_FILE:
            try:
                keys, values = _read_file(inputs[0], node, _value(inputs[1]))
            except tf.errors.OpError as error:
                raise DatasetFnError(
                    f"a vocabulary file of the dataset cannot be read: {error.message}"
                ) from error
        elif node.op == "LookupTableImportV2" and all(it.op == "Const" for it in inputs[1:]):
            keys, values = (_value(it) for it in inputs[1:])
        else:
            continue
        order = np.argsort(keys.numpy(), kind="stable")
        _fill(graph_def, node, tf.gather(keys, order), tf.gather(values, order))


def _value(const: NodeDef) -> tf.Tensor:
    # Not tensor_util: it cannot read strings in this format.
    tensor = const.attr["value"].tensor
    return tf.io.parse_tensor(tensor.SerializeToString(), tf.dtypes.as_dtype(tensor.dtype))


def _fill(graph_def: GraphDef, node: NodeDef, keys: tf.Tensor, values: tf.Tensor) -> None:
    controls = node_defs.control_inputs(node)
    del node.input[1:]
    node.op = "LookupTableImportV2"
    node.attr.clear()
    for key, part in (("Tin", keys), ("Tout", values)):
        const = graph_def.node.add(name=f"{node.name}/{key}", op="Const")
        const.attr["dtype"].type = node.attr[key].type = part.dtype.as_datatype_enum
        const.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(part))
        node.input.append(const.name)
    node.input.extend(controls)


def _read_file(table: NodeDef, node: NodeDef, filename: tf.Tensor) -> tuple[Any, Any]:
    """Return the keys and values of a table that is filled from a file."""
    types = {key: table.attr[key].type for key in ("key_dtype", "value_dtype")}
    name = f"distributed-input/inlined/{os.getpid()}/{next(_tables)}"
    with tf.device("CPU:0"):
        handle = tf.raw_ops.HashTableV2(shared_name=name, **types)
        try:
            tf.raw_ops.InitializeTableFromTextFileV2(
                table_handle=handle,
                filename=filename,
                key_index=node.attr["key_index"].i,
                value_index=node.attr["value_index"].i,
                vocab_size=node.attr["vocab_size"].i,
                delimiter=node.attr["delimiter"].s,
                offset=node.attr["offset"].i,
            )
            return tf.raw_ops.LookupTableExportV2(
                table_handle=handle, Tkeys=types["key_dtype"], Tvalues=types["value_dtype"]
            )
        finally:
            tf.raw_ops.DestroyResourceOp(resource=handle)
