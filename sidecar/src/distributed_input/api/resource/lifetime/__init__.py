"""What an input keeps from its creation to its deletion. Pure.

The API server checks the rules. Other parts read which encryption an input began with.
"""
