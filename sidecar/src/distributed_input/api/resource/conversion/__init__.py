"""Conversion of inputs and policies between v1alpha1 and v1beta1. Pure.

An annotation keeps what the other version cannot express, up to a size and a depth: see `kept`.
`convert` validates nothing. It converts any object that the API server may have stored, and parts
of one, unless the object is nested too deeply for Python's recursion limit.
"""
