"""What the resource means: values and pure functions. No cluster, no clock, no event loop.

`types` is the resource, `load` reads it from YAML, `problems` words what is wrong with it.
"""
