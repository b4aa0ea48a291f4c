"""What to do about an input: a frozen snapshot in, desired objects and a status out. Pure."""
