"""What the processes share: serving, credentials, health, metrics, logs, shutdown.

Imports neither TensorFlow nor any of the processes' own packages, and knows nothing
of splits or rows.
"""
