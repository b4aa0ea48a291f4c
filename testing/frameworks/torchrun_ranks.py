"""One rank of a training that torchrun has started in one or more pods.

    torchrun ... -m testing.frameworks.torchrun_ranks STEPS SAVED KILLED STATE OUT

It continues from the checkpoint in the file STATE if that exists, up to this number of steps. Rank
0 saves the checkpoint after step SAVED, and the last rank kills itself after step KILLED; 0: never.
Rank 0 writes a line to OUT for each step: the step's rows in all ranks, sorted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import distributed_input

STEPS, SAVED, KILLED = map(int, sys.argv[1:4])
STATE, OUT = map(Path, sys.argv[4:6])


def main() -> None:
    """Read the steps."""
    dist.init_process_group("gloo")
    done = 0
    with distributed_input.connect("ranks", timeout=60) as data:
        dataset = data.torch()
        if STATE.exists():
            saved = torch.load(STATE, weights_only=True)
            dataset.load_state_dict(saved["input"])
            done = saved["done"]
        while done < STEPS:
            for batch in dataset:
                done += 1
                record(gathered(batch["id"]))
                if done == SAVED and dist.get_rank() == 0:
                    torch.save({"input": dataset.state_dict(), "done": done}, STATE)
                if done == KILLED and dist.get_rank() == dist.get_world_size() - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                if done == STEPS:
                    break
    dist.destroy_process_group()


def gathered(numbers: torch.Tensor) -> list[int]:
    """Return the rows of this step in all ranks, sorted."""
    parts = [torch.empty_like(numbers) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, numbers.contiguous())
    return sorted(torch.cat(parts).tolist())


def record(numbers: list[int]) -> None:
    """Write the rows of a step."""
    if dist.get_rank() == 0:
        with OUT.open("a") as file:
            file.write(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
