"""Seeded schedules of faults against real processes, with a ledger of every row.

A schedule is a pure function of a seed: a topology, a dataset, and the faults with their times. The
consumers run in this process, in lockstep, as collectives require. The dispatcher, the workers and
the sidecars are separate processes. `python -m testing.chaos --seed S --n 1` repeats schedule S.

    schedule      the values that describe a run; `draw` computes them from a seed
    run           runs one schedule and checks the logs; `loop` is the training loop
    fleet         the processes of a schedule; `faults` acts on them, `proxy` cuts connections
    consumers     the trainers: steps in lockstep, positions, crashes
    rows          the dataset: each row is a function of (seed, epoch, split, row)
    reference     the rows that each step must have, computed from `order.splits` alone
    ledger        the rows that each step had, compared with the reference
    summary       counts and waiting times over many schedules
    mutants       deliberate bugs; the ledger must report each of them
    measurements  programs that write the tables of docs/faults.md
"""
