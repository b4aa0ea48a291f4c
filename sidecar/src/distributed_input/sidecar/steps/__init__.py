"""Second stage of the sidecar: steps of an epoch, assembled from the partitions' streams."""
