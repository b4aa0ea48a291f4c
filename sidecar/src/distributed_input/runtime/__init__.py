"""What the processes share: servers, credentials, health, metrics, logs and shutdown.

This package imports neither TensorFlow nor the processes' own packages, and contains nothing about
splits or rows.
"""
