"""Runs the tests that depend on the API server with other versions of Kubernetes.

`build` builds a control plane, `runs` runs the tests with it, and `results` stores what they found.
"""
