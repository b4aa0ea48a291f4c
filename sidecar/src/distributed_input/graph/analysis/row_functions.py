"""Functions that work row by row: each row of a result depends on the same row of the arguments.

If a function of batches works row by row, the batches may have any rows. The tables have the ops
that are known to do so. A function with any other op counts as one that does not.

The bytes of a row may still depend on its place in the batch: TensorFlow computes most functions of
floating-point numbers by other instructions for the last numbers of a tensor than for those before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, tensor_shape_pb2
from tensorflow.python.framework import function_def_to_graph, tensor_util

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import FunctionDef

_ELEMENTWISE = frozenset(
    "Abs Acos Acosh Add AddV2 Asin Asinh AsString Atan Atan2 Atanh BitwiseAnd BitwiseOr BitwiseXor"
    " Cast Ceil ClipByValue Cos Cosh DecodeBase64 Digamma Div DivNoNan EncodeBase64 Equal Elu Erf"
    " Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Identity Invert IsFinite IsInf IsNan"
    " LeakyRelu LeftShift Less LessEqual Lgamma Log Log1p LogicalAnd LogicalNot LogicalOr Maximum"
    " Minimum Mod Mul Neg NextAfter NotEqual OnesLike Pow RealDiv Reciprocal RegexFullMatch"
    " RegexReplace Relu Relu6 Rint Round Rsqrt RightShift SelectV2 Selu Sigmoid Sign Sin Sinh"
    " Softplus Softsign Sqrt Square SquaredDifference StaticRegexFullMatch StaticRegexReplace"
    " StopGradient StringJoin StringLength StringLower StringStrip StringToHashBucket"
    " StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Sub Substr Tan"
    " Tanh TruncateDiv TruncateMod UnicodeTranscode Xdivy Xlogy ZerosLike Bucketize".split()
)
_REDUCTIONS = frozenset("All Any ArgMax ArgMin EuclideanNorm Max Mean Min Prod Sum".split())
# These work on each image or example: the first argument has the rows, the others are the same.
_PER_ROW = frozenset(
    "AdjustContrastv2 AdjustHue AdjustSaturation BiasAdd DecodeRaw HSVToRGB MatMul RGBToHSV"
    " ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor".split()
)
# Their results are exact, or rounded as IEEE 754 defines it. All ops are exact for other numbers.
EXACT_FOR_FLOATS = frozenset(
    "Abs Add AddV2 AsString BiasAdd Bucketize Cast Div Equal Greater GreaterEqual IsFinite IsInf"
    " IsNan Less LessEqual Mul Neg NotEqual RealDiv Square StringToNumber Sub".split()
)
MOVES = frozenset(
    "ConcatV2 DecodeCSV ExpandDims GatherV2 Identity LookupTableFindV2 OneHot OnesLike"
    " Pack Pad PadV2 ParseExampleV2 Reshape ReverseV2 SelectV2 Squeeze StopGradient StridedSlice"
    " Tile Transpose Unpack ZerosLike".split()
)
_STATELESS_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_DEPTH = 8


def works_by_rows(
    library: Mapping[str, FunctionDef], name: str, shapes: Sequence[Any], exact: bool = False
) -> bool:
    """Return whether a function is known to work row by row.

    `shapes` are the TensorShapes of the arguments that are batches. The others are the same for all
    rows. With `exact`, a row must also have the same bytes in batches of all sizes, and no op may
    check the batch.
    """
    called = node_defs.called_functions(library, library[name].node_def) if name in library else {}
    functions = [library[one] for one in dict.fromkeys([name, *called]) if one in library]
    sizes = tuple(node_defs.to_bytes(shape.as_proto()) for shape in shapes)
    return _works_by_rows(tuple(map(node_defs.to_bytes, functions)), sizes, exact)


@functools.lru_cache(maxsize=32)
def _works_by_rows(functions: tuple[bytes, ...], shapes: tuple[bytes, ...], exact: bool) -> bool:
    """Check the first function, which may call the others. It takes milliseconds.

    The arguments are serialized: equal functions of other splits are checked once.
    """
    parsed = [function_pb2.FunctionDef.FromString(one) for one in functions]
    library = {one.signature.name: one for one in parsed}
    sizes = [
        tf.TensorShape(tensor_shape_pb2.TensorShapeProto.FromString(shape)) for shape in shapes
    ]
    name = parsed[0].signature.name if parsed else ""
    return _RowCheck(library, exact).function(name, sizes, [True] * len(sizes)) == "rows"


class _RowCheck:
    def __init__(self, library: Mapping[str, FunctionDef], exact: bool) -> None:
        self._library = library
        self._exact = exact
        self._called = tf.compat.v1.GraphDef()
        self._called.library.function.extend(library.values())

    def function(self, name: str, shapes: list[Any], rows: list[bool], depth: int = 0) -> str:
        """Return "rows" if all results have the rows of arguments, "same" if none has, else ""."""
        function = self._library.get(name)
        if function is None or depth > _DEPTH:
            return ""
        count = len(function.signature.input_arg)
        shapes = [*shapes, *([tf.TensorShape(None)] * (count - len(shapes)))][:count]
        rows = [*rows, *([False] * (count - len(rows)))][:count]
        try:
            with tf.Graph().as_default() as graph:
                tf.graph_util.import_graph_def(self._called, name="")
                nodes, _ = function_def_to_graph.function_def_to_graph_def(function, shapes)
                tf.graph_util.import_graph_def(nodes, name="")
        except (ValueError, tf.errors.OpError):
            return ""
        arguments = zip(function.signature.input_arg, rows, strict=True)
        has_rows: dict[str, bool | None] = {
            f"{argument.name}:0": is_row for argument, is_row in arguments
        }
        for op in graph.get_operations():
            if op.type == "Placeholder" and f"{op.name}:0" in has_rows:
                continue
            found = self._op(op, [has_rows.get(one.name) for one in op.inputs], depth)
            for tensor in op.outputs:
                has_rows[tensor.name] = found
            if self._exact and not op.outputs and op.type != "NoOp":
                return ""
        names = [_tensor(graph, function, one.name) for one in function.signature.output_arg]
        results = [has_rows.get(name) for name in names]
        if all(results):
            return "rows"
        return "same" if not any(results) and None not in results else ""

    def _op(self, op: Any, rows: list[bool | None], depth: int) -> bool | None:
        """Return whether the results have rows; None if that is unknown."""
        if None in rows:
            return None
        if op.type in _STATELESS_CALLS:
            shapes = [one.shape for one in op.inputs]
            name = op.get_attr("f").name
            found = self.function(name, shapes, [bool(row) for row in rows], depth + 1)
            return {"rows": True, "same": False}.get(found)
        if not any(rows):
            is_known = not op.op_def.is_stateful or op.type in ("ReadVariableOp", "Placeholder")
            return False if is_known else None
        if self._exact and not _is_exact(op):
            return None
        if op.type in _ELEMENTWISE:
            return _same_rank(op, rows) or None
        if op.type in _REDUCTIONS:
            return _keeps_first(op, _constant(op, 1)) or None
        if op.type in _PER_ROW:
            return (rows[0] and not any(rows[1:]) and _is_per_row(op)) or None
        rule = _RULES.get(op.type)
        return (rule is not None and rule(op, rows)) or None


def _is_exact(op: Any) -> bool:
    """Return whether each result has the same bytes, whatever its place in the tensor.

    A cast of a number that the integer type does not have is not exact, and neither is the sign of
    a NaN of bfloat16.
    """
    if op.type in MOVES:
        return True
    types = {one.dtype for one in (*op.inputs, *op.outputs)}
    if op.type == "DecodeRaw" or tf.bfloat16 in types or any(one.is_complex for one in types):
        return False  # DecodeRaw fails for a batch of strings of different lengths
    if op.type == "Cast" and op.inputs[0].dtype.is_floating and op.outputs[0].dtype.is_integer:
        return False
    return op.type in EXACT_FOR_FLOATS or not any(one.is_floating for one in types)


def _tensor(graph: Any, function: FunctionDef, result: str) -> str:
    """Return the name of a result's tensor: that of `node:output:1` depends on the op."""
    node, *rest = function.ret[result].split(":")
    if len(rest) < 2:
        return f"{node}:0"
    op = graph.get_operation_by_name(node)
    index = 0
    for argument in op.op_def.output_arg:
        if argument.name == rest[0]:
            return f"{node}:{index + int(rest[1])}"
        if argument.number_attr:
            index += int(op.get_attr(argument.number_attr))
        elif argument.type_list_attr:
            index += len(op.get_attr(argument.type_list_attr))
        else:
            index += 1
    return ""


def _constant(op: Any, index: int) -> Any:
    """Return the value of a constant input as a flat list, or None."""
    value = tensor_util.constant_value(op.inputs[index])
    return None if value is None else value.reshape(-1).tolist()


def _same_rank(op: Any, rows: Sequence[bool | None]) -> bool:
    """Return whether each row is combined with the same row of the others."""
    ranks = [one.shape.rank for one in op.inputs]
    if None in ranks:
        return len(ranks) == 1
    most = max(ranks)
    return most > 0 and all(
        rank == most if is_row else rank < most or one.shape[0] == 1
        for one, rank, is_row in zip(op.inputs, ranks, rows, strict=True)
    )


def _keeps_first(op: Any, axes: Any, new: int = 0) -> bool:
    """Return whether none of these axes is the first; `new` axes are added to the input's."""
    rank = op.inputs[0].shape.rank
    if axes is None:
        return False
    if rank is None:
        return all(axis > 0 for axis in axes)
    return rank > 0 and all(axis % (rank + new) != 0 for axis in axes)


def _is_per_row(op: Any) -> bool:
    if op.type == "MatMul":
        return not op.get_attr("transpose_a")
    if op.type == "BiasAdd":
        return op.get_attr("data_format") == b"NHWC" and (op.inputs[0].shape.rank or 0) > 1
    if "Resize" in op.type or op.type.startswith(("Adjust", "HSV", "RGB")):
        return op.inputs[0].shape.rank == 4
    return True


def _gathers(op: Any, rows: Sequence[bool | None]) -> bool:
    table, at, _ = rows
    axis = _constant(op, 2)
    if axis is None or op.get_attr("batch_dims"):
        return False
    return axis == [0] if at and not table else bool(table and not at and _keeps_first(op, axis))


def _slices(op: Any, rows: Sequence[bool | None]) -> bool:
    if not rows[0] or any(rows[1:]):
        return False
    masks = [op.get_attr(f"{name}_mask") & 1 for name in ("ellipsis", "new_axis", "shrink_axis")]
    whole = op.get_attr("begin_mask") & op.get_attr("end_mask") & 1
    strides = _constant(op, 3)
    # An ellipsis that comes first may stand for no axis.
    return bool(whole and not any(masks) and strides and strides[0] == 1)


def _reshapes(op: Any, rows: Sequence[bool | None]) -> bool:
    before, after = op.inputs[0].shape, _constant(op, 1)
    if not rows[0] or not after or after[0] != -1 or not before.rank:
        return False
    if any(size <= 0 for size in after[1:]) or not before[1:].is_fully_defined():
        return False
    size = 1
    for one in after[1:]:
        size *= one
    return bool(before[1:].num_elements() == size)


def _first_of(values: Any, expected: Sequence[int]) -> bool:
    return values is not None and values[: len(expected)] == list(expected)


def _parses(op: Any, rows: Sequence[bool | None]) -> bool:
    dense = not (op.get_attr("num_sparse") or op.get_attr("ragged_value_types"))
    # A feature of unknown size is padded to that of the longest row in the batch.
    dense = dense and all(
        tf.TensorShape(one).is_fully_defined() for one in op.get_attr("dense_shapes")
    )
    return bool(dense and rows[0] and not any(rows[1:]) and op.inputs[0].shape.rank == 1)


_RULES: dict[str, Callable[[Any, Sequence[bool | None]], bool]] = {
    "ConcatV2": lambda op, rows: all(rows[:-1]) and _keeps_first(op, _constant(op, -1)),
    "DecodeCSV": lambda _, rows: bool(rows[0] and not any(rows[1:])),
    "ExpandDims": lambda op, rows: bool(rows[0]) and _keeps_first(op, _constant(op, 1), new=1),
    "GatherV2": _gathers,
    "LookupTableFindV2": lambda _, rows: list(rows) == [False, True, False],
    "OneHot": lambda op, rows: (
        list(rows) == [True, False, False, False] and op.get_attr("axis") != 0
    ),
    "Pack": lambda op, rows: all(rows) and _keeps_first(op, [op.get_attr("axis")], new=1),
    "Pad": lambda op, rows: bool(rows[0]) and _first_of(_constant(op, 1), [0, 0]),
    "PadV2": lambda op, rows: bool(rows[0] and not rows[2]) and _first_of(_constant(op, 1), [0, 0]),
    "ParseExampleV2": _parses,
    "Reshape": _reshapes,
    "ReverseV2": lambda op, rows: bool(rows[0]) and _keeps_first(op, _constant(op, 1)),
    "Softmax": lambda op, _: (op.inputs[0].shape.rank or 0) > 1,
    "LogSoftmax": lambda op, _: (op.inputs[0].shape.rank or 0) > 1,
    "Squeeze": lambda op, _: (
        bool(op.get_attr("squeeze_dims")) and _keeps_first(op, op.get_attr("squeeze_dims"))
    ),
    "StridedSlice": _slices,
    "Tile": lambda op, rows: bool(rows[0]) and _first_of(_constant(op, 1), [1]),
    "Transpose": lambda op, rows: bool(rows[0]) and _first_of(_constant(op, 1), [0]),
    "Unpack": lambda op, _: _keeps_first(op, [op.get_attr("axis")]),
}
