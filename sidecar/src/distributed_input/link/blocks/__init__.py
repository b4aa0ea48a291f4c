"""The stream of blocks from a worker to a sidecar: over gRPC, TCP, TLS, or memory of one host."""
