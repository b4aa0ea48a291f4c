"""The Kubernetes objects of an input: the observed ones in a snapshot, and the desired ones.

All functions are pure: they do no I/O and do not change their arguments.
"""
