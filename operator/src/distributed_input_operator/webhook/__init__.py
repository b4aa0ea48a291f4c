"""The admission webhook that injects sidecars, and its TLS certificates."""
