"""Datasets in a worker: opens the splits of a job, by entry point or graph, and caches them."""
