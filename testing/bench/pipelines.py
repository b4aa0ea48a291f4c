"""Splits, memory and restore times of common pipelines.

    python -m testing.bench.pipelines [--seconds 3] [--only NAME ...]

Each pipeline runs with the product's defaults: a dispatcher, a worker with a folder for states, a
sidecar and a trainer. The trainer reads for some seconds. Then all processes get SIGKILL, and new
ones restore the trainer's position. Prints a Markdown table. "Restore" is the time from `connect()`
to the first batch. "Memory" is the resident memory of the worker more than before it ran a split.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testing.bench.case import REPO
from testing.bench.processes import BenchError, memory
from testing.bench.systems import default_spec, sidecar
from testing.integration.cluster import Cluster

BATCH = 64
_TRAIN = """
import json, sys, time
seconds, saved = float(sys.argv[1]), bytes.fromhex(sys.argv[2])
import distributed_input
began = time.monotonic()
with distributed_input.connect() as data:
    if saved:
        data.restore(saved)
    rows, first, batches = 0, None, iter(data.numpy())
    for batch in batches:
        first = first or time.monotonic() - began
        rows += 1
        if time.monotonic() - began - first >= seconds:
            break
    job = data._consumer.opened.job
    print(json.dumps({"first": first, "batches": rows, "position": data.position().hex(),
        "splits": job.num_splits, "amplification": job.read_amplification,
        "split_bytes": job.split_bytes}), flush=True)
    sys.stdin.readline()
"""


def _numbers(ctx: Any, rows: int) -> Any:
    import tensorflow as tf

    data = tf.data.Dataset.range(rows)
    return data.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)


def _sized(ctx: Any, data: Any) -> Any:
    return data.batch(ctx.get_per_replica_batch_size(BATCH))


def _files(ctx: Any, pattern: str) -> Any:
    import tensorflow as tf

    names = tf.data.Dataset.list_files(pattern, shuffle=False)
    return names.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)


def images(ctx: Any, folder: str) -> Any:
    """Decode and augment a JPEG file for each row."""
    import tensorflow as tf

    def load(name: Any) -> Any:
        image = tf.image.decode_jpeg(tf.io.read_file(name), channels=3)
        return tf.image.random_flip_left_right(tf.image.resize(image, [96, 96]))

    names = [f"{folder}/{i % 64:04}.jpeg" for i in range(100_000)]
    data = tf.data.Dataset.from_tensor_slices(names)
    data = data.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return _sized(ctx, data.map(load, num_parallel_calls=2))


def text(ctx: Any, folder: str) -> Any:
    """Split the lines of 40 text files into words."""
    import tensorflow as tf

    lines = _files(ctx, f"{folder}/*.txt").interleave(tf.data.TextLineDataset, cycle_length=4)
    return _sized(ctx, lines.map(lambda line: tf.strings.to_hash_bucket_fast(
        tf.strings.split(line)[:8], 1000)).map(lambda ids: tf.ensure_shape(ids, [8])))  # fmt: skip


def one_tfrecord(ctx: Any, folder: str) -> Any:
    """Parse the records of one file."""
    return _records(ctx, f"{folder}/0000.tfrecord")


def tfrecords(ctx: Any, folder: str) -> Any:
    """Parse the records of 1,000 files."""
    return _records(ctx, f"{folder}/*.tfrecord")


def _records(ctx: Any, pattern: str) -> Any:
    import tensorflow as tf

    data = _files(ctx, pattern).interleave(tf.data.TFRecordDataset, cycle_length=4)
    parsed = data.map(lambda record: tf.reshape(tf.io.decode_raw(record, tf.uint8)[:256], [256]))
    return _sized(ctx, parsed.map(_slow))


def csv(ctx: Any, folder: str) -> Any:
    """Parse lines of 40 files as numbers."""
    import tensorflow as tf

    lines = _files(ctx, f"{folder}/*.csv").flat_map(tf.data.TextLineDataset)
    return _sized(ctx, lines.map(lambda line: tf.stack(tf.io.decode_csv(line, [0.0] * 4))))


def generator(ctx: Any, folder: str) -> Any:
    """Call a Python generator in each split."""
    import tensorflow as tf

    def rows() -> Iterator[int]:
        yield from range(ctx.input_pipeline_id, 400_000, ctx.num_input_pipelines)

    data = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))
    return _sized(ctx, data)


def python_map(ctx: Any, folder: str) -> Any:
    """Compute rows of 1 ms in Python."""
    import tensorflow as tf

    def load(row: Any) -> Any:
        time.sleep(0.001)
        return row

    def call(row: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(load, [row], tf.int64), [])

    return _sized(ctx, _numbers(ctx, 100_000).shuffle(1000).map(call))


def slices(ctx: Any, folder: str) -> Any:
    """Read arrays in memory."""
    import numpy as np
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(np.zeros((100_000, 32), np.float32))
    data = data.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return _sized(ctx, data.map(_slow))


def infinite(ctx: Any, folder: str) -> Any:
    """Repeat without an end."""
    return _sized(ctx, _numbers(ctx, 10_000).repeat().map(_slow))


def record_shard(ctx: Any, folder: str) -> Any:
    """Shard records after a map."""
    import tensorflow as tf

    data = tf.data.Dataset.range(400_000).map(_slow)
    return _sized(ctx, data.shard(ctx.num_input_pipelines, ctx.input_pipeline_id))


def cached(ctx: Any, folder: str) -> Any:
    """Cache each split in files."""
    return _sized(ctx, _numbers(ctx, 100_000).map(_slow).cache(f"{folder}/cache"))


def bucketed(ctx: Any, folder: str) -> Any:
    """Batch rows of similar length."""
    import tensorflow as tf

    data = _numbers(ctx, 100_000).map(lambda i: tf.ones([i % 50 + 1], tf.float32))
    return data.bucket_by_sequence_length(lambda row: tf.shape(row)[0], [10, 25], [16, 16, 16])


def shuffled(ctx: Any, folder: str) -> Any:
    """Shuffle 10,000 rows of 50 KB."""
    import tensorflow as tf

    data = _numbers(ctx, 100_000).map(lambda i: tf.fill([12_500], tf.cast(i, tf.float32)))
    return _sized(ctx, data.shuffle(10_000))


def _slow(row: Any) -> Any:
    """Return the row after about a tenth of a millisecond of computing."""
    import tensorflow as tf

    noise = tf.reduce_sum(tf.random.uniform([10_000]))
    return row + tf.cast(tf.minimum(noise, 0.0), row.dtype)


PIPELINES: tuple[Callable[[Any, str], Any], ...] = (
    *(images, text, one_tfrecord, tfrecords, csv, generator, python_map, slices, infinite),
    *(record_shard, cached, bucketed, shuffled),
)


def write_data(folder: Path) -> None:
    """Write the files of all pipelines."""
    import tensorflow as tf

    image = tf.io.encode_jpeg(tf.cast(tf.random.uniform([128, 128, 3], 0, 255), tf.uint8)).numpy()
    for i in range(64):
        (folder / f"{i:04}.jpeg").write_bytes(image)
    for i in range(40):
        (folder / f"{i:04}.txt").write_text("the quick brown fox jumps over lazy dogs\n" * 5000)
        (folder / f"{i:04}.csv").write_text("1.0,2.0,3.0,4.0\n" * 5000)
    for i in range(1000):
        with tf.io.TFRecordWriter(str(folder / f"{i:04}.tfrecord")) as writer:
            for _ in range(100 if i else 20_000):
                writer.write(b"x" * 256)


def main() -> None:
    """Measure the pipelines and print the table."""
    parser = argparse.ArgumentParser(prog="python -m testing.bench.pipelines", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    names = [pipeline.__name__ for pipeline in PIPELINES]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        write_data(Path(path))
        print("| Pipeline | Splits | Read amplification | Shuffle buffers | Memory | Restore |")
        print("|---|---|---|---|---|---|")
        for name in options.only:
            print(measure(name, Path(path), options.seconds), flush=True)


def measure(name: str, data: Path, seconds: float) -> str:
    """Run one pipeline, restore it, and return its line of the table."""
    try:
        with tempfile.TemporaryDirectory() as path:
            before, used = _run(name, data, Path(path), seconds, "")
            after, _ = _run(name, data, Path(path), 0.0, before["position"])
    except BenchError as error:
        return f"| {name} | failed: {' '.join(str(error).split())[-300:]} |"
    held = before["split_bytes"]
    return (
        f"| {name} | {before['splits']} | {before['amplification'] or 1} "
        f"| {_mib(held) if held else '-'} | {_mib(used)} | {after['first']:.2f} s |"
    )


def _mib(size: float) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def _run(
    name: str, data: Path, folder: Path, seconds: float, position: str
) -> tuple[dict[str, Any], int]:
    """Run new processes, kill them, and return the trainer's results and the worker's memory."""
    with Cluster() as cluster:
        (worker,) = cluster.add_workers(1, "--path", str(REPO), "--state-dir", str(folder))
        idle = memory([worker.pid])["beyond_slots"]
        one = default_spec(f"testing.bench.pipelines:{name}", {"folder": str(data)})
        with sidecar(cluster, one) as started:
            trainer = subprocess.Popen(
                [sys.executable, "-c", _TRAIN, str(seconds), position],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"DISTRIBUTED_INPUT_DIR": str(started.shared), "PATH": os.environ["PATH"]},
                cwd=REPO,
            )
            try:
                line = trainer.stdout.readline() if trainer.stdout else b""
                used = memory([worker.pid])["peak"] - idle
            finally:
                trainer.kill()
                trainer.wait()
                for part in (worker, started, cluster.dispatcher):
                    part.kill()
        if not line:
            raise BenchError(worker.tail()[-300:])
        return json.loads(line), used


if __name__ == "__main__":
    main()
