"""The admission webhook that injects sidecars, and its certificates."""
