"""How fast: in-process tf.data, tf.data service and DistributedInput, in one run on the same cores.

    python -m testing.bench --out DIR [--quick]

`transport`, `photos` and `latency` are the workloads, `incumbents` and `ours` start the systems,
`trainer` is the process under test, `processes` measures processes, and `report` writes down.
Nothing here decides what is good: it measures, interleaved, and reports medians with their spread.
"""
