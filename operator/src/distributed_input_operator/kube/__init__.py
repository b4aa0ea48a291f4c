"""Access to the Kubernetes API. It decides nothing.

api            requests with a deadline, and errors that say what to do
kinds          the kinds of objects, and the rights that they need
reflector      the list and the watch of one kind
watch          the lists and watches of the custom kinds, by kopf
store          the objects that the watches reported
apply          the writes of a plan
owner          a live read of an input before its children are created again
events         Kubernetes Events about limits
read_cache     reads that several callers share
preconditions  what must be there before the watches start
"""
