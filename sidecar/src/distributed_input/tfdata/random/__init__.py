"""Random operations in tf.data graphs, and how their seeds are replaced."""
