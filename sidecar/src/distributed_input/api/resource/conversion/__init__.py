"""Conversion of DistributedInputs between v1alpha1 and v1beta1. Pure.

`convert` is total and lossless: an annotation keeps what the other version cannot express. It works
on any object that the API server may have stored, also on parts of one, and validates nothing.
"""
