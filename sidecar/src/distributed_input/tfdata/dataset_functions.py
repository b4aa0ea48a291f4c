"""The functions of a dataset in the process that built it, with the user's lines.

A graph that TensorFlow serialized has no lines, and a dataset of a generator has no graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.random.order_dependence import depends_on_order
from distributed_input.tfdata.user_code import is_library


def lines_of(dataset: tf.data.Dataset) -> dict[str, str]:
    """Return the user's line "file:number" of the first call of each op in a dataset's functions.

    Ops without a known line are not included.
    """
    found: dict[str, str] = {}
    for graph in _graphs(dataset):
        for op in graph.get_operations():
            for frame in reversed(op.traceback or ()):
                if not is_library(frame.filename):
                    found.setdefault(op.type, f"{frame.filename}:{frame.lineno}")
                    break
    return found


def functions_of(dataset: tf.data.Dataset) -> list[Any]:
    """Return the functions of a dataset and of its inputs, as TensorFlow's objects.

    They do not hold the dataset. Python functions in its graph exist as long as these objects do.
    """
    seen: set[int] = set()
    datasets, found = [dataset], []
    while datasets:
        one = datasets.pop()
        if id(one) not in seen:
            seen.add(id(one))
            datasets += one._inputs()  # noqa: SLF001
            found += one._functions()  # noqa: SLF001
    return found


def depend_on_order(dataset: tf.data.Dataset) -> bool:
    """Return whether a function of a dataset has an op whose result depends on earlier calls."""
    return any(
        node.op not in library and node.op != "Placeholder" and depends_on_order(node.op)
        for whole in (graph.as_graph_def() for graph in _graphs(dataset))
        for library in [node_defs.library(whole)]
        for node in node_defs.all_nodes(whole)
    )


def _graphs(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yield the graphs of the functions of a dataset and of its inputs, with those they call."""
    seen: set[int] = set()
    graphs = [wrapper.function.graph for wrapper in functions_of(dataset)]
    while graphs:
        graph = graphs.pop()
        if id(graph) in seen:
            continue
        seen.add(id(graph))
        yield graph
        called = getattr(graph, "_functions", {}).values()
        graphs += [below.graph for below in called if getattr(below, "graph", None) is not None]
