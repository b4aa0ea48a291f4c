"""Both ends of every protocol between two processes, and what the ends share.

The processes use them, and no end knows what its process does with the messages.
"""
