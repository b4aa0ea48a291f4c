"""The Kubernetes objects of an input: as observed in a snapshot, and as desired. Pure."""
