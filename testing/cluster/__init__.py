"""A real Kubernetes for tests: a control plane, and a node that runs pods (needs root).

Nothing here depends on DistributedInput, except the images: they come from its Dockerfile.
"""
