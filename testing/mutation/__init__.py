"""Removes single guards from a copy of the sources, and checks that a test reports each removal.

`python -m testing.mutation` runs all of them, in some minutes. `guards` lists them.

`python -m testing.mutation.sources` makes small changes of the modules in `sources.MODULES`, and
checks that their unit tests or simulated schedules report each of them.
"""
