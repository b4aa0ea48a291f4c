"""How many workers an input needs. Pure: rates and state in, a number out."""
