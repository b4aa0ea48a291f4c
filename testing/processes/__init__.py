"""Processes of the product that start in milliseconds, for tests and measurements."""
