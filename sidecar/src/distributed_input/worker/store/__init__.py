"""Stored blocks: splits that were computed, in a folder. A cache, and never the truth.

It holds splits that are complete. What is missing, damaged or out of date is computed.
"""
