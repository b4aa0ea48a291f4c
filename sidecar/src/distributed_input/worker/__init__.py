"""The worker's process: runs splits in TensorFlow and streams their rows. No delivery state."""
