"""Generated inputs and policies of each version, for the laws of the conversion.

`make conversions N=10000` checks the laws with that many of each version.
"""
