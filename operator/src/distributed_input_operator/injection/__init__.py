"""Injection of the sidecar into trainer pods, with the index and number of trainers.

All functions are pure: they do no I/O and do not change their arguments.
"""
