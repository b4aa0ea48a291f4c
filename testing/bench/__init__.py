"""Benchmarks of in-process tf.data, tf.data service and DistributedInput, as a cluster runs them.

    python -m testing.bench --out DIR [--quick] [--one-host]

Trainers are on one host and workers on another, both network namespaces of this machine (`hosts`).

`workloads` has the datasets, and `systems` starts the servers. `trainer` is the process under test,
`processes` measures processes, and `report` writes the results. All systems are
measured in turn in one run. The report has medians with their spread, and does not judge them.
"""
