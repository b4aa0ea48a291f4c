"""The parsers, by the part that they belong to. `TARGETS` lists them all."""

from testing.fuzz.target import Target
from testing.fuzz.targets import datasets, files, kubernetes, network, rows, streams, trainers

TARGETS: tuple[Target, ...] = (
    *rows.TARGETS,
    *network.TARGETS,
    *streams.TARGETS,
    *trainers.TARGETS,
    *files.TARGETS,
    *kubernetes.TARGETS,
    *datasets.TARGETS,
)
"""Those that import TensorFlow come last."""
