"""The files that `distributed-input init` writes: a small project that runs as it is. Pure."""

from __future__ import annotations

from string import Template

_INPUT = Template("""\
# The input pipeline `$name`. To check it: distributed-input validate input.yaml
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: $name}
spec:
  dataset:
    type: EntryPoint
    entryPoint:
      function: "dataset:dataset_fn" # in dataset.py
      source: {type: Path, path: .}
  workers: {replicas: $workers}
""")

_DATASET = Template('''\
"""The dataset of input.yaml. Workers import this module, the training program does not."""

import tensorflow as tf

BATCH = $batch  # rows in one step over all trainers
ROWS = 20_000


def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return one split of the dataset, in batches."""
    # Replace these numbers by your data. Shard first, so that a split reads only its own rows.
    # For files:
    #   files = tf.data.Dataset.list_files("data/*.tfrecord", shuffle=False)
    #   files = files.shard(context.num_input_pipelines, context.input_pipeline_id)
    #   rows = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
    numbers = tf.data.Dataset.range(ROWS)
    numbers = numbers.shard(context.num_input_pipelines, context.input_pipeline_id)
    rows = numbers.shuffle(1000).map(make_row, num_parallel_calls=tf.data.AUTOTUNE)
    return rows.batch(context.get_per_replica_batch_size(BATCH))


def make_row(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the features and the label of one row. Replace it by your decoding."""
    features = tf.random.stateless_uniform([8], seed=[number, 0])
    return features, tf.reduce_sum(features, keepdims=True)
''')

_TRAIN = Template('''\
"""A training program that reads the input `$name`.

distributed-input run input.yaml -- python train.py
"""

import tensorflow as tf

import distributed_input


def main() -> None:
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Input([8]), tf.keras.layers.Dense(1)])
        model.compile(optimizer=tf.keras.optimizers.Adam(0.02), loss="mse")
    with distributed_input.connect("$name") as train:
        # To save the position with the weights, add the callback
        # distributed_input.keras.BackupAndRestore(train, "backup").
        # After the first epoch, Keras warns that the input ran out of data: it is complete.
        # The dataset shuffles, and not Keras.
        model.fit(train.distribute(strategy), epochs=2, shuffle=False, verbose=2)


if __name__ == "__main__":
    main()
''')


def starter_files(name: str, workers: int, batch: int) -> dict[str, str]:
    """Return the content of each file by its name. `batch`: rows in one step of all trainers."""
    values = {"name": name, "workers": workers, "batch": batch}
    files = {"input.yaml": _INPUT, "dataset.py": _DATASET, "train.py": _TRAIN}
    return {file: template.substitute(values) for file, template in files.items()}
