"""A real Kubernetes for tests: a control plane in seconds, and, for root, a node that runs pods.

Nothing here knows of DistributedInput, except that its images are built from its Dockerfile.
"""
