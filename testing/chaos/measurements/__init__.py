"""Measurements with faults; each writes its table into docs/faults.md."""
