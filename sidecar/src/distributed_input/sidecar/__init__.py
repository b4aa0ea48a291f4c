"""The sidecar's process: fetches a trainer's rows into shared memory. Imports no TensorFlow."""
