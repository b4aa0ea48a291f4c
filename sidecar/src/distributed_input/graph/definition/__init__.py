"""Serialized tf.data graphs: read, edit, compare and pack them."""
