"""Everything of tf.data: specs, rows in and out of tensors, and graphs of datasets.

Modules here know nothing of the network, of positions, or of who consumes what.
"""
