"""The worker process: runs splits in TensorFlow and streams their rows. Has no delivery state."""
