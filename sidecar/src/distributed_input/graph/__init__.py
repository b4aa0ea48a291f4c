"""tf.data graphs: export, sharding, seeds, and conversion of element specs.

Modules here do not use the network, and do not depend on positions or consumers.
"""
