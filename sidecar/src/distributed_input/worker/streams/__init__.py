"""Streams of a worker: cuts splits into blocks and shares them between streams of the same rows."""
