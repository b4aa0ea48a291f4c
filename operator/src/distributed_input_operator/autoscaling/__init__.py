"""The number of workers that an input needs. Pure: rates and state in, a number out."""
