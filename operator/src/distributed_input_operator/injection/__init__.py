"""A trainer pod with its sidecar, and which trainer of how many it is. Pure."""
