"""Mistakes that new users make, and what they then read."""
