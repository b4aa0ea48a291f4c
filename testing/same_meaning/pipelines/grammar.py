"""The grammar: sources and transformations, and what is known about the pipelines made of them."""

from __future__ import annotations

from testing.same_meaning.pipelines import sources, transformations
from testing.same_meaning.pipelines.parts import (
    SOURCES,
    Draw,
    Pipeline,
    maps,
    names_of,
    nested,
    text,
)

__all__ = ["SOURCES", "Draw", "Pipeline", "maps", "names_of", "nested", "sources", "text"]
__all__ += ["transformations"]

RANDOM = (
    "shuffle",
    "sample",
    "choose_random",
    "resample",
    "resample_uneven",
    "noise",
    "seeded_noise",
    "list_files",
    "any_order",
    "apply",
)
"""What draws random numbers."""
CHOOSING = ("sample", "choose_random")
"""Sources that choose one of several datasets by random numbers."""


def chooses(pipeline: Pipeline) -> bool:
    """Return whether elements are chosen by random numbers, and not only shuffled."""
    return any(name in (*CHOOSING, "resample_uneven") for name in names_of(pipeline))


def is_sharded_inside(pipeline: Pipeline) -> bool:
    """Return whether the source, or each dataset in it, is a split's own."""
    source = pipeline["source"]
    if not SOURCES[source[0]].nests:
        return bool(source[0] == "sharded_files")
    return all(any(op[0] == "shard" for op in one["ops"]) for one in source[1])


def is_random(pipeline: Pipeline) -> bool:
    """Return whether two runs of a pipeline may differ."""
    free = any(op[2] and op[3] is False for op in maps(pipeline))
    return free or any(name in RANDOM for name in names_of(pipeline))


ROW_KEEPING = (
    "shuffle repeat endless take skip prefetch cache policy any_order unique take_while shard "
    "user_shard filter snapshot concatenate_same apply"
).split()
"""Transformations that pass elements on unchanged, so that a batch before them stays one."""
ORDER_DEPENDENT = (
    "take skip enumerate window batch padded_batch ragged_batch rebatch replica_batch "
    "replica_padded replica_ragged scan unique group_by_window group_sum bucket resample "
    "take_while zip zip_with concatenate_same sample choose shard sharded_files user_shard "
    "slices spread"
).split()
"""What makes elements depend on which others come before them."""
COUNT_BY_VALUE = (
    "filter take_while unique group_by_window group_sum bucket resample resample_uneven spread "
    "slices ignore_errors choose_random sample choose zip zip_with"
).split()
"""What makes the number of elements depend on which elements come, or in which order."""
BATCHES = "batch padded_batch ragged_batch replica_batch replica_padded replica_ragged".split()


def may_be_empty(pipeline: Pipeline) -> bool:
    """Return whether one of the sources has no rows. An empty dataset that is repeated ends."""
    sources = [one["source"] for one in nested(pipeline)]
    lengths = [args[0] for _, *args in sources if args and isinstance(args[0], list)]
    ranges = [args for _, *args in sources if len(args) == 2 and args[0] == args[1]]
    return bool(ranges) or any(not any(one) for one in lengths)


def may_never_return(pipeline: Pipeline) -> bool:
    """Return whether TensorFlow may look for a next element without end.

    `repeat()` does if each pass but the first has no elements, for example because the first random
    choice is an empty dataset, or one with fewer rows than a batch.
    """
    names = names_of(pipeline)
    if "endless" not in names or not any(name in (*CHOOSING, "choose") for name in names):
        return False
    removes = any(name in ("filter", "take_while", "skip", "resample", "window") for name in names)
    drops = any(op[-1] is True for one in nested(pipeline) for op in one["ops"] if op[0] in BATCHES)
    return removes or drops or may_be_empty(pipeline)


def last_batch(pipeline: Pipeline) -> int | None:
    """Return the index of the op whose batches the elements certainly are; None: there is none."""
    for index, (name, *_) in reversed(list(enumerate(pipeline["ops"]))):
        if name in BATCHES:
            return index
        if name not in ROW_KEEPING:
            return None
    return None


def keeping_remainder(pipeline: Pipeline, dealt: bool) -> Pipeline | None:
    """Return the pipeline without `drop_remainder` of its last batches; None if it stays.

    The product replaces it by the job's `remainder: drop`, for the batches of the job. Where rows
    are dealt, each pass of a `repeat` behind the batch drops its own remainder, as in TensorFlow.
    """
    ops, index = pipeline["ops"], last_batch(pipeline)
    if index is None or ops[index][-1] is not True:
        return None
    if dealt and any(op[0] in ("repeat", "endless") for op in ops[index + 1 :]):
        return None
    return {**pipeline, "ops": [*ops[:index], [*ops[index][:-1], False], *ops[index + 1 :]]}


def is_batched(pipeline: Pipeline) -> bool | None:
    """Return whether the elements are certainly batches of rows, or certainly rows; else None."""
    ops = pipeline["ops"]
    if pipeline["source"][0] == "python":
        return bool(pipeline["source"][1] == "batches")
    if last_batch(pipeline) is not None:
        return True
    if all(name in ROW_KEEPING for name, *_ in ops):
        simple = pipeline["source"][0] in ("range", "ids", "text", "tfrecord", "fixed", "records")
        return False if simple else None
    dividing = ("batch", "rebatch", "group", "bucket", "concatenate", "zip_with")
    sources = ("range", "ids", "text", "tfrecord", "fixed", "records")
    if any(name.partition("_")[0] in dividing or name in (*BATCHES, *dividing) for name, *_ in ops):
        return None
    return False if pipeline["source"][0] in sources else None
