"""The sections of a DistributedInput's spec, one model per section."""
