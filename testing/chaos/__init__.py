"""Faults on a schedule, against real processes, with a ledger of every row.

A schedule is a pure function of a seed: a topology, a dataset, and what is done to the processes
when. Its consumers run in this process, in lockstep as collectives would make them; the
dispatcher, the workers and the sidecars are processes of their own.
`python -m testing.chaos --seed S --n 1` runs schedule S again.

    draw        seed -> Schedule
    forks       processes that start in milliseconds: forked from one that has imported everything
    fleet       the processes of one schedule; `faults` acts on them, `proxy` sits between them
    consumers   the training loop: lockstep, positions, crashes
    reference   which rows each step must have: from `distributed_input.assignment.splits` alone
    ledger      which rows it had
    mutants     deliberate bugs, each of which the ledger must report
"""
