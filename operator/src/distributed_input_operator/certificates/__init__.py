"""Certificates of the processes of an input. Pure, except for random serial numbers."""
