"""The user's pod template, and the keys of the lists in it. Pure."""
