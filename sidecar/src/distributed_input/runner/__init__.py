"""`distributed-input run`: the whole of a DistributedInput as one process tree on one machine.

A runner starts the same processes that the cluster runs, and supervises them as a kubelet
would. It holds no state of the data plane and is not part of it: everything it knows it
reads from ready files, exit statuses and the dispatchers' Status call. Modules that only
compute (policy, plan, stats, display, report) know no process, file or clock.
"""
