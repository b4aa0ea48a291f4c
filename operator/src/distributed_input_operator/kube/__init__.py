"""Access to the Kubernetes API. It decides nothing.

api            requests with a deadline, and errors that say what to do
kinds          the kinds of objects, their paths, and the rights that they need
watch          the watches, by kopf
store          the objects that the watches reported
apply          the writes of a plan
owner          a live read of an input before its children are created again
events         Kubernetes Events about limits
read_cache     reads that several callers share
preconditions  what must be there before the watches start
"""
