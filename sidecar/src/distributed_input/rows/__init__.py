"""How rows are represented: element structure, runs of columns, blocks on the wire, digests.

Imports numpy, never TensorFlow.
"""
