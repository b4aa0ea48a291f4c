"""A program of tf.data service that knows nothing of us; runs in a pod, from a ConfigMap.

Prints a line of JSON: by sharding policy, the rows that it was given.
"""

import json
import os

import tensorflow as tf

service = tf.data.experimental.service
policies = service.ShardingPolicy
rows = tf.data.Dataset.range(100)
hinted = rows.shard(tf.data.experimental.SHARD_HINT, tf.data.experimental.SHARD_HINT)


def read(policy, dataset):
    """The rows of an epoch, in order."""
    address = os.environ["DISTRIBUTED_INPUT_TF_DATA_SERVICE"]
    distributed = dataset.apply(service.distribute(policy, address))
    return sorted(int(row) for row in distributed.as_numpy_iterator())


asked = {policies.OFF: rows, policies.DYNAMIC: rows, policies.DATA: rows, policies.HINT: hinted}
asked[policies.FILE_OR_DATA] = rows
print(json.dumps({policy.name: read(policy, dataset) for policy, dataset in asked.items()}))
