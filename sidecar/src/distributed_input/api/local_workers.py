"""Workers that run beside a trainer, in its pod: what sidecars and autoscaling both assume."""

PLANNED_SHARE = 0.9
"""The share of a local worker's rate that is planned with. Rates are measured, and its CPUs are
those that the trainer leaves idle at the moment."""
