"""What a new leader does for users while it still lists all objects."""
