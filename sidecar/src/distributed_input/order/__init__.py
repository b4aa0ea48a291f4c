"""Which consumer reads which split, and in which order: pure functions of the job and the epoch."""
