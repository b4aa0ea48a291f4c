"""The calls that sidecars and workers make to the dispatcher."""
