"""Runs the tests that depend on the API server with other versions of Kubernetes.

`build` builds a control plane, and `results` stores what the tests found with it.
"""
