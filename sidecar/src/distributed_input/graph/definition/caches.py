"""The caches in a dataset's graph, and the files to which they write.

TensorFlow stores all elements before a cache in files of one name. Splits are different datasets,
so each needs files of its own. The name of these files contains a fingerprint of everything before
the cache: two datasets that differ never read the same files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from distributed_input.api.errors import ConfigError
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef

OPS = frozenset(["CacheDataset", "CacheDatasetV2"])
_REPEATS = ("RepeatDataset", "ShuffleAndRepeatDataset")
_FILE = 1  # index of the input with the file's name; "" is a cache in memory


def has_useless_cache(graph_def: GraphDef) -> bool:
    """Return whether a cache in memory is read only once: each epoch of a split has its own."""
    nodes = node_defs.by_name(graph_def.node)
    repeats = [node for node in graph_def.node if node.op.startswith(_REPEATS)]
    repeated = {below.name for node in repeats for below in node_defs.ancestors(nodes, node)}
    return any(
        node.op in OPS and file_name(nodes, node) == "" and node.name not in repeated
        for node in graph_def.node
    )


def check(graph_def: GraphDef) -> None:
    """Check that each cache to files can have files of its own in each split.

    Raises:
      ConfigError: a cache is in a function, or its file name is computed.
    """
    for scope, scope_nodes in node_defs.scopes(graph_def).items():
        nodes = node_defs.by_name(scope_nodes)
        for node in scope_nodes:
            name = file_name(nodes, node) if node.op in OPS else ""
            if name != "" and (scope or not name):
                raise ConfigError(
                    f"the dataset caches to files ({name or 'with a computed name'}) in a function "
                    "of flat_map or interleave, where splits cannot get files of their own: move "
                    "cache(filename) behind that function, or remove it"
                )


def before_caches(graph_def: GraphDef) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes before caches to files, and the functions that they call, by name.

    Later epochs read what they computed in the first one, so it must not depend on the epoch.
    """
    nodes = node_defs.by_name(graph_def.node)
    before = [
        below
        for node in graph_def.node
        if node.op in OPS and file_name(nodes, node)
        for below in node_defs.ancestors(nodes, node)
    ]
    called = node_defs.called_functions(node_defs.library(graph_def), before)
    return frozenset(node.name for node in before), frozenset(called)


def rename(graph_def: GraphDef, path_of: Callable[[str, str], str]) -> None:
    """Replace the file names of caches, in place.

    The graph is of one split in one epoch, with its seeds. `path_of` returns the new name, by the
    old one and the fingerprint of what is before the cache.

    Raises:
      ConfigError: see `check`.
    """
    check(graph_def)
    nodes = node_defs.by_name(graph_def.node)
    caches = [node for node in graph_def.node if node.op in OPS and file_name(nodes, node)]
    prints = [_fingerprint(graph_def, nodes, node) for node in caches]
    for node, fingerprint in zip(caches, prints, strict=True):
        old = nodes[node_defs.source_of(node_defs.data_inputs(node)[_FILE])]
        new = graph_def.node.add()
        new.CopyFrom(old)
        new.name = f"{node.name}/file"
        value = new.attr["value"].tensor
        value.ClearField("tensor_content")
        value.string_val[:] = [path_of(file_name(nodes, node) or "", fingerprint).encode()]
        node.input[_FILE] = new.name


def file_name(nodes: dict[str, NodeDef], node: NodeDef) -> str | None:
    """Return the name of a cache's file, "" for a cache in memory, None for a computed name."""
    const = node_defs.input_node(nodes, node, _FILE)
    if const is None or const.op != "Const":
        return None
    tensor = const.attr["value"].tensor
    name: bytes = b"".join(tensor.string_val) or tensor.tensor_content[1:]
    return name.decode(errors="replace")


def _fingerprint(graph_def: GraphDef, nodes: dict[str, NodeDef], cache: NodeDef) -> str:
    source = nodes[node_defs.source_of(node_defs.data_inputs(cache)[0])]
    before = node_defs.ancestors(nodes, source)
    called = node_defs.called_functions(node_defs.library(graph_def), before).values()
    digest = hashlib.blake2b(digest_size=8)
    tokens: dict[bytes, bytes] = {}
    for node in (*before, *(node for function in called for node in function.node_def)):
        token = node.attr["token"].s if "token" in node.attr else b""
        if token:  # of a Python function: a number in this process
            node = type(node).FromString(node_defs.to_bytes(node))
            node.attr["token"].s = tokens.setdefault(token, b"%d" % len(tokens))
        digest.update(node_defs.to_bytes(node))
    for function in called:
        digest.update(node_defs.to_bytes(function.signature))
        digest.update(repr(sorted(function.ret.items())).encode())
    return digest.hexdigest()
