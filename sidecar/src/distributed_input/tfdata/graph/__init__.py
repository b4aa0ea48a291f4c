"""Serialized tf.data graphs: reading, copying, comparing, and storing them."""
