"""The objects that own trainer pods, from which a pod gets its index and the number of trainers.

One module for each kind. It has the kind, and a function that returns the rank, or None if the
owners are not of its kind. A new owner is a new module, an entry in `rank.RESOLVERS`, and the right
to get its objects in the chart's role of the webhook.
"""
