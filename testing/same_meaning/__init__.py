"""The same meaning: random pipelines through the product, compared with TensorFlow in one process.

A seed draws a pipeline from a grammar over the public API of tf.data, or a Python source, and how
it is read: a dataset or a dataset_fn of the trainer, or an entry point; `numpy()`, `dataset()` or
`distribute()`; trainers, replicas, epochs, batches, splits. The same pipeline runs in TensorFlow,
unsharded or once for each split. The comparison covers:

- the rows of each epoch as a multiset, the nesting of their components, and the element_spec;
- their order in each split, if it is promised;
- the numbers and sizes of steps, which are equal in all trainers;
- the random choices of the splits, and of the epochs;
- the end, errors, and refusals: each must have one of the known reasons, which must hold.

    python -m testing.same_meaning --n 10000 --seed 0
    python -m testing.same_meaning --n 2000 --seed 0 --faults    with worker ends, restores
    python -m testing.same_meaning --case 4711                   one seed, or a file with a case

A case that differs is made smaller and written as a program. Keep it: add its JSON to
`regressions`. A case that differs runs again, and both results are printed. A difference that does
not repeat is one too. The tables count refusals, and how each op was split.

    pipelines                   what is drawn: grammar, parts, sources, transformations, functions
    cases                       a case: the pipeline, and how it is read
    reference, traced           TensorFlow's side
    product, servers            the product's side, as threads of this process
    judgement                   what both made, as rows, and the comparison by subject
    check, runs, shrink         one case; many cases and the tables; smaller cases

Threads and not processes, because a start takes longer than a case: a case takes about 1 s of CPU,
most of it in TensorFlow, which builds functions. The trainers, sidecars, worker and dispatcher run
the product's code, over its sockets, shared memory and gRPC.

It cannot see:

- how well a pipeline is shuffled, beyond splits or epochs with equal permutations and random values
  that occur twice: a shuffle with a tenth of its buffer would pass;
- which rows remain if the steps of several trainers are incomplete, `remainder` is drop, and the
  dataset is split by its files: only the number of rows is compared;
- what needs several processes or hosts: a crash of the worker's process by a signal, forked
  children, folders that only one process sees, collective operations, and several trainers with
  several replicas each;
- state of an earlier run, such as files that were replaced under their names: each case has an
  input of its own, and files never change.
"""
