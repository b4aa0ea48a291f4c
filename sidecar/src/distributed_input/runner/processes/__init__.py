"""The local processes of one input: start, restart, stop, and cleanup."""
