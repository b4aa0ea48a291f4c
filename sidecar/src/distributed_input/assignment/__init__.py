"""Which consumer reads which split, and in which order. Pure functions of the job and the epoch."""
