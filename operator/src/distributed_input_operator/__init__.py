"""The DistributedInput resource, and what runs it on a cluster.

Imports neither TensorFlow nor any of the processes in `distributed_input`: it starts
them, as pods, and speaks of them through the resource alone.
"""
