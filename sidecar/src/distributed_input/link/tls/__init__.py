"""Mutual TLS 1.3 between the processes of one input.

Certificates are read from a folder again when they change. Open connections continue; new ones use
the new certificate. This package issues no certificates.
"""
