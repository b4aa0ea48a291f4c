"""Third stage of the sidecar: batches in shared memory, and the connection to the trainer."""
