"""A program that uses TensorFlow's tf.data service only. It runs in a pod, from a ConfigMap.

It prints one line of JSON: the rows that it received, by sharding policy.
"""

import json
import os

import tensorflow as tf

service = tf.data.experimental.service
policies = service.ShardingPolicy
rows = tf.data.Dataset.range(100)
rows_with_hint = rows.shard(tf.data.experimental.SHARD_HINT, tf.data.experimental.SHARD_HINT)


def read(policy, dataset):
    """Return the sorted rows of one epoch."""
    address = os.environ["DISTRIBUTED_INPUT_TF_DATA_SERVICE"]
    distributed = dataset.apply(service.distribute(policy, address))
    return sorted(int(row) for row in distributed.as_numpy_iterator())


datasets = {
    policies.OFF: rows,
    policies.DYNAMIC: rows,
    policies.DATA: rows,
    policies.HINT: rows_with_hint,
}
datasets[policies.FILE_OR_DATA] = rows
print(json.dumps({policy.name: read(policy, dataset) for policy, dataset in datasets.items()}))
