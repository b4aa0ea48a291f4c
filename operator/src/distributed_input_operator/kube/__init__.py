"""Access to the Kubernetes API: client, watches, the store of observed objects, apply, Events."""
