"""A process of a trainer, with the variables that torchrun sets. It answers lines with lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed_input.api.environment import DIR_ENV

_PROGRAM = Path(__file__).with_name("rank_trainer.py")


class RankProcess:
    """A process of a trainer; see `rank_trainer.py`.

    Args:
        folder: shared folder of its sidecar.
        rank: its rank among all processes.
        ranks: the number of all processes.
        local: its rank among the processes of its trainer, and their number.
        data_size: the number of data ranks of a mesh; 0: no mesh.
    """

    def __init__(
        self, folder: Path, rank: int, ranks: int, local: tuple[int, int], data_size: int = 0
    ) -> None:
        self.rank, self.ranks = rank, ranks
        self._program = [str(_PROGRAM), str(data_size)]
        values = {"RANK": rank, "WORLD_SIZE": ranks}
        values |= {"LOCAL_RANK": local[0], "LOCAL_WORLD_SIZE": local[1]}
        self._env = {name: str(value) for name, value in values.items()} | {DIR_ENV: str(folder)}

    def start(self, position: str = "", program: Sequence[str] = ()) -> None:
        """Start the process, at a position. `program`: arguments of Python, for another program."""
        self.process = subprocess.Popen(
            [sys.executable, *(program or self._program), *filter(None, [position])],
            env={**os.environ, **self._env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def request(self, line: str = "next") -> None:
        print(line, file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with status {self.process.wait(10)}"
        return json.loads(line)

    def position(self) -> str:
        self.request("position")
        return str(self.answer())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()
