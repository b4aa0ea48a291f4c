"""Output of `distributed-input run` and `status`: progress, statistics and the report."""
