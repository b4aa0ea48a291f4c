"""The TensorFlow side of the client: `tf.distribute` and `tf.data` datasets, checkpoints."""
