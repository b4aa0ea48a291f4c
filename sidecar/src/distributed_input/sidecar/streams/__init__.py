"""First stage of the sidecar: streams of row blocks from workers, one for each open split."""
