"""Removes single guards from a copy of the sources, and checks that a test reports each removal.

`python -m testing.mutation` runs all of them, in some minutes. `guards` lists them.
"""
