"""The same meaning: random pipelines through the product, compared with TensorFlow in one process.

A seed draws a pipeline from a grammar over the public API of tf.data, or a Python source, and how
it is read: a dataset or a dataset_fn of the trainer, or an entry point; `numpy()`, `dataset()` or
`distribute()`; trainers, replicas, epochs, batches, splits. The same pipeline runs in TensorFlow,
unsharded or once for each split. The comparison covers the rows of each epoch as a multiset, their
order in each split, the random choices of the splits, the sizes of steps, the element_spec, the end
and errors.

    python -m testing.same_meaning --n 10000 --seed 0
    python -m testing.same_meaning --n 2000 --seed 0 --faults    with worker ends, restores
    python -m testing.same_meaning --case 4711                   one seed, or a file with a case

A case that differs is made smaller and written as a program. Keep it: add its JSON to
`regressions`. A clear refusal is no difference. The tables count refusals, and how each op was
split.

    grammar, python_sources     what is drawn; functions: what the pipelines call
    cases                       a case: the pipeline, and how it is read
    reference, product          the two sides; servers: the product's, as threads of this process
    values, compare             elements as values; the judgement
    check, runs, shrink         one case; many cases and the tables; smaller cases

Threads and not processes, because a start takes longer than a case: a case takes about 1 s of CPU,
most of it in TensorFlow. The trainers, sidecars, worker and dispatcher run the product's
code, over its sockets, shared memory and gRPC.

It cannot see:

- how well a pipeline is shuffled, beyond splits with equal permutations and random values that
  occur twice: a shuffle with a tenth of its buffer would pass;
- what needs several processes or hosts: a crash of the worker's process by a signal, forked
  children, folders that only one process sees, and collective operations of several trainers;
- state of an earlier run, such as files that were replaced under their names: each case has an
  input, files and rows of its own.
"""
