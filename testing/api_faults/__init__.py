"""Faults between the operator and a real API server, and changes of every field of the spec.

The first are those of Sieve, the second are those of Acto.

entry      the operator's `main` in a fork, which repairs early, with a clock that may be wrong
operators  an operator that is killed and started again
kubelet    a thread that makes all pods ready
proxy      the proxy that injects faults: lost connections, errors, changed watches, stale lists
state      what is compared: an input's objects without what the server sets
certificates  checks those of an encrypted input
scenario   an input's life: created, changed, deleted
fields     another valid value for each field of the spec
"""
