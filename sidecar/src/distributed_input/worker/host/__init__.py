"""The CPUs of the worker's host: what other processes leave idle, and the worker's priority."""
