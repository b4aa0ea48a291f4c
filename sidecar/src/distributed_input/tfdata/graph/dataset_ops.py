"""What the ops of datasets do. Each family has the ops that are known to do so.

Ops are named by their kinds: that of `ParallelMapDatasetV2` is `ParallelMap`.
"""

from __future__ import annotations

import functools
import re

_KIND = re.compile(r"^(?:Experimental)?(.*?)(?:Dataset)?(?:V\d+)?$")

READERS = frozenset("TFRecord TextLine FixedLengthRecord CSV Sql LMDB Avro Parquet".split())
"""Datasets that read files."""
SLICES = frozenset(["Tensor", "TensorSlice", "SparseTensorSlice"])
"""Datasets of values in the graph."""
MAPS = frozenset(["Map", "ParallelMap"])
FILTERS = frozenset(["Filter", "ParallelFilter"])
FLATTENS = frozenset("FlatMap Interleave ParallelInterleave LegacyParallelInterleave".split())
"""Ops that make a dataset of each element, and return the elements of these."""
PARALLEL = frozenset(
    "ParallelMap MapAndBatch ParallelInterleave LegacyParallelInterleave ParallelFilter".split()
)
"""Ops that call their function for several elements at once."""
BATCHES = {"Batch": 1, "ParallelBatch": 1, "MapAndBatch": -3, "PaddedBatch": 1, "Rebatch": 1}
"""Ops that batch rows, and the index of their input batch_size."""
REPEATS = frozenset(["Repeat", "ShuffleAndRepeat"])
PASSES = frozenset(
    "Prefetch Options MaxIntraOpParallelism PrivateThreadPool Model Optimize Finalize"
    " Rewrite".split()  # enumerate in a function has a RewriteDataset
)
"""Ops that return their input's elements, in its order."""
REORDERS = PASSES | REPEATS | {"Shuffle", "Cache"}
"""Ops that return all elements of their input as they are, in any order, perhaps several times."""


@functools.lru_cache(maxsize=1024)
def kind(op: str) -> str:
    """Return what a dataset op does; "" for another op."""
    found = _KIND.match(op)
    return found.group(1) if found is not None and "Dataset" in op else ""
