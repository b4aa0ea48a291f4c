"""Replaces the seeds of random operations in tf.data graphs."""
