"""The socket and the shared memory between a sidecar and its trainer."""
