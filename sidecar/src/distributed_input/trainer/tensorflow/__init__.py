"""The TensorFlow side of the client: `tf.data` and `tf.distribute` datasets, and checkpoints."""
