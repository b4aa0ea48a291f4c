"""What `distributed-input run` prints: progress, statistics, logs and the final report."""
