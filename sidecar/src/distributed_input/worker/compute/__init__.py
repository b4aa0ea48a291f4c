"""The elements that a worker computes at the same time, and which of them come first."""
