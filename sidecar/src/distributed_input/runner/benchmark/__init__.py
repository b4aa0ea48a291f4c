"""`distributed-input bench`: a dataset in process and through workers, one after the other.

`comparison` is pure. `timed_process` starts the processes that read, which import TensorFlow.
"""
