"""The boundary of a dataset: what comes before it is computed once, and read in later epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tensorflow as tf

from distributed_input.graph.analysis.files_read import UnknownFilesError
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.canonical import canonicalize
from distributed_input.graph.definition.datasets import kind, main_scope
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef

_OPTIONS, _READ = "OptionsDataset", "CacheDataset"
_OPTIONS_ATTR = "serialized_options"
_MARK = "distributed_input.boundary"


def boundary() -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Return a function for `Dataset.apply` that marks a boundary, and keeps all elements.

    Workers with `spec.store` store the elements before the boundary, split by split. Later epochs,
    and later jobs with the same code and files before it, read them. What follows, such as a
    shuffle and augmentation, is computed in each epoch:

        rows = rows.map(decode_and_resize).apply(distributed_input.boundary())
        rows = rows.shuffle(1000).map(augment).batch(64)

    What comes before must not depend on the epoch or on random values. Otherwise, and without a
    store, the boundary does nothing. Rows are always the same as without it.
    """

    def mark(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.with_options(_options())

    return mark


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.framework_type = [_MARK]  # TensorFlow only counts it
    return options


def has_boundary(graph_def: GraphDef) -> bool:
    """Return whether a boundary is anywhere in a graph."""
    return any(map(_is_mark, node_defs.all_nodes(graph_def)))


def before(graph_def: GraphDef) -> GraphDef:
    """Return the graph of what is before the boundary. Nothing behind it changes the result.

    Raises:
        UnknownFilesError: there is not just one last boundary, or a shard is behind it: other
            splits need the rows, too.
    """
    mark = _find(graph_def)
    out = node_defs.copy_of(graph_def)
    node_defs.retval(out).input[0] = mark.input[0]
    return canonicalize(out)


def replace(graph_def: GraphDef, path: str) -> GraphDef:
    """Return a graph whose boundary stores elements in the files of a path, or reads them."""
    out = node_defs.copy_of(graph_def)
    mark = _find(out)
    name = node_defs.add_const(out.node, f"{mark.name}/path", path, tf.string).name
    mark.op = _READ
    mark.attr.pop(_OPTIONS_ATTR)
    mark.input[:] = [mark.input[0], name]
    return out


def _find(graph_def: GraphDef) -> NodeDef:
    """Return the last boundary. Raises as `before`."""
    found = list(_last_marks(graph_def))
    if len(found) != 1:
        places = "several branches" if found else "a function, such as that of flat_map"
        raise UnknownFilesError(f"its boundary is in {places}")
    ((mark, is_sharded),) = found
    if is_sharded:
        raise UnknownFilesError("it has a shard behind its boundary")
    return mark


def _last_marks(graph_def: GraphDef) -> Iterator[tuple[NodeDef, bool]]:
    """Yield each boundary that no other boundary follows, and whether a shard follows it."""
    main = main_scope(graph_def)
    stack, seen = [(main.output, False)], set()
    while stack:
        node, is_sharded = stack.pop()
        if node is None or (node.name, is_sharded) in seen:
            continue
        seen.add((node.name, is_sharded))
        if _is_mark(node):
            yield node, is_sharded
        else:
            inputs = (main.input(node, index) for index in range(len(node_defs.data_inputs(node))))
            stack += [(below, is_sharded or kind(node.op) == "Shard") for below in inputs]


def _is_mark(node: NodeDef) -> bool:
    if node.op != _OPTIONS:
        return False
    expected = _options()._to_proto()  # noqa: SLF001 - there is no public one
    found = type(expected).FromString(node.attr[_OPTIONS_ATTR].s)
    return bool(found == expected)  # the user may copy options, and change some
