"""Saved states of splits: a cache that lets a split continue without a replay of its rows."""
