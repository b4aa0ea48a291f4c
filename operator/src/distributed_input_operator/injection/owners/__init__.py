"""The objects that own trainer pods, from which a pod gets its index and the number of trainers.

One module for each kind, with a function that returns the rank of a pod, or None if the pod's
owners are not of this kind. A new kind of owner is a new module, an entry in `rank.RANKS`, and the
right to get its objects in the webhook's role in the chart.
"""
