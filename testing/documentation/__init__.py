"""The code blocks and commands in the documentation, and how each is checked.

`blocks` finds them. `python_code`, `manifests` and `commands` return what is wrong with one.
"""
