"""`python -m testing.drill`: induce causes of a stall, and check that `explain` names each.

Not a part of `make test`: it takes four minutes, and needs a machine without other load.
"""
