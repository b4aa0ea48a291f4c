"""Runs the product on Linux without the calls that macOS lacks: `make portability`.

    shim          removes these calls from the modules of Python, in one process
    path/         a folder for PYTHONPATH, which applies the shim to each process of Python
    short_paths   a plugin of pytest
    limited       a command with a time limit
    __main__      the tests and the example that run so

It does not replace a test on macOS: the calls that stay behave as on Linux.
"""
