"""The dataset of the fault tests. It runs in workers, from a ConfigMap."""

import threading
import time

import numpy as np

_core = threading.Lock()  # of a worker with one core: rows that wait would not need one


def dataset_fn(context, rows, seconds, slow=(0, 0)):
    """Return this split's row numbers. Each takes `seconds`, in `slow` epochs four times that."""
    if slow[0] <= context.epoch < slow[1]:
        seconds *= 4

    numbers = range(context.input_pipeline_id, rows, context.num_input_pipelines)

    def read():
        for row in numbers:
            with _core:
                time.sleep(seconds)
            yield np.int64(row)

    class Rows:
        def __iter__(self):
            return read()

        def __len__(self):
            return len(numbers)

    return Rows()
