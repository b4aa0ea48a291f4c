"""The comparison of what both sides made."""
