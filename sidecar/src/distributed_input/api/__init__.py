"""The contract between all processes and both distributions.

Errors, names, environment variables, flags, files, wire messages, the protocol version, the
sidecar's configuration, and the models of the resource. This package imports no other package of
the project. Only `resource` needs pydantic.
"""
