"""Pipelines: the grammar, how they are drawn, and what they call."""
