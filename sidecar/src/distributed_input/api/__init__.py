"""The contract that every process and both distributions share.

Errors, names, wire messages, the protocol version, and the models of the resource. This package
imports nothing else of the project.
"""
