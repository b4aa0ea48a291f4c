"""Benchmarks of in-process tf.data, tf.data service and DistributedInput on the same cores.

    python -m testing.bench --out DIR [--quick]

`workloads` has the datasets, and `systems` starts the servers. `trainer` is the process under test,
`processes` measures processes, and `report` writes the results. All systems are
measured in turn in one run. The report has medians with their spread, and does not judge them.
"""
