"""Second stage of the sidecar: the steps of an epoch, assembled from the partitions' streams."""
