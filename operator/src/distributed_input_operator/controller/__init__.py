"""The control loop: a queue of inputs, one reconciliation at a time for each, and its inputs."""
