"""The datasets of the benchmark, with their cases."""
