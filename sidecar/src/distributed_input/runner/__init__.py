"""`distributed-input run`: all processes of a DistributedInput as one process tree.

The runner starts the same processes as the cluster and supervises them as a kubelet would. It is
not part of the data plane and stores none of its state: it reads ready files, exit statuses and
the dispatchers' Status call. These modules are pure, with `now` as an argument: `plan`,
`display.stats`, `display.format` and `display.report`.

It needs click, for the commands, and psutil, for processes and CPUs. Tables and live lines need no
library: the trainer writes to the same terminal, and scripts read the tables.

`local` starts such a run from Python, with `trainer_proxy` in place of the trainer.

The layers, from the top: `local`, `commands`, `supervisor`, `display`, `processes`, `spec`, `plan`,
`folders`, then `process_logs` and `process_wrapper`.
"""
