"""Looks at the dispatchers of inputs that trainers read, between two reconciliations.

A look only measures. It costs a tenth of a reconciliation, and leads to one if the measurement
changes what the operator does.
"""
