"""A deterministic simulation of the delivery: the product's code, in virtual time.

Dispatcher, workers, sidecars and trainers run as simulated processes in one real process. Their
code is the product's: dispatcher state and service, worker streams, sidecar stages, the client's
session. Threads are tasks of a seeded scheduler, so one seed gives exactly one execution. Waiting
costs nothing. `python -m testing.delivery --n 1 --seed S -v` repeats seed S and prints its events.

    schedule      the values of a seed: topology, dataset, faults, latencies
    run           runs one schedule
    virtual       tasks, processes, virtual time, sockets, connections, gRPC
    dataset       the seam below the worker: rows of numpy instead of TensorFlow
    install       puts these into the product's modules
    world         the processes of a schedule
    trainer       one trainer's process, also with an iterator that runs ahead
    training      the training loops: steps, checkpoints, crashes, restores
    loops         how the loops of several readers of a consumer end and start again together
    events        faults at virtual times
    cases         schedules for one guard each, and the bugs that a simulation must report
    fleet         measures how many workers are useful

The ledger, the reference, the rows and the faults at steps are those of `testing.chaos`.

Not simulated: TensorFlow, the C code of gRPC and numpy, preemption between any two instructions (a
task is interrupted at locks, messages and waits), damaged memory.
"""
