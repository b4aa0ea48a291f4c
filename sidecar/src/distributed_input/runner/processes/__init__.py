"""The processes of a local run: start, restart and stop."""
