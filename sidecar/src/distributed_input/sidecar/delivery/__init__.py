"""Third stage of the sidecar: batches in shared memory, sent to the trainer."""
