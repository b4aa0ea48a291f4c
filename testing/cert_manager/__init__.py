"""cert-manager's own controllers as a process, built from its Go module."""
