"""Which job of which input a trainer gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError
from distributed_input.runtime.credentials import Credentials
from distributed_input.sidecar import input_registry as module
from distributed_input.sidecar.delivery.connection import Connection
from distributed_input.sidecar.input_registry import Served
from distributed_input.sidecar.inputs import Input

NOBODY = "127.0.0.1:9"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    spec = {"dataset": {"entryPoint": "a:b"}, "sidecar": {"bufferBytes": 1 << 12}}

    def make(name: str, job: str) -> Input:
        return Input(name, InputConfig.from_json(spec), NOBODY, Credentials(), tmp_path, 0, 1, job)

    made = Served(make, ["train", "eval"])
    made.start()
    yield made
    made.close()


def read(made: Input) -> None:
    """A trainer is connected."""
    made.attach(cast("Connection", object()))


def end(made: Input) -> None:
    made._connection = None
    made._counting.clear()


def test_every_job_is_one_and_has_a_name_of_its_own(served: Served) -> None:
    own, sweep = served.find("train", ""), served.find("train", "sweep")
    assert (own.config.name, sweep.config.name) == ("train", "train/sweep")
    assert own.ring.path != sweep.ring.path
    assert served.find("train", "sweep") is sweep
    assert served.find("eval", "sweep") is not sweep


def test_what_is_not_served_is_told(served: Served) -> None:
    with pytest.raises(ConfigError, match="serves no input 'test'; it serves eval, train"):
        served.find("test", "")
    with pytest.raises(ConfigError, match=r"connect\(\) needs the name of one"):
        served.find("", "")
    with pytest.raises(ConfigError, match="1 to 63 letters"):
        served.find("train", "a/b")


def test_a_job_that_nobody_reads_makes_room_for_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_JOBS", 3)
    one, two = served.find("train", "one"), served.find("train", "two")
    for made in (one, two):
        read(made)
    with pytest.raises(ConfigError, match="3 jobs of input train are being read"):
        served.find("train", "three")
    served.find("eval", "three")  # another input's
    end(one)
    three = served.find("train", "three")
    assert not one.ring.path.exists()
    assert served.find("train", "two") is two
    assert three in served.all()
    end(two)


def test_there_must_be_room_for_another_ring(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Volume:
        total = 2 << 12

    monkeypatch.setattr("shutil.disk_usage", lambda _: Volume)
    with pytest.raises(ConfigError, match=r"spec\.sidecar\.buffer"):
        served.find("train", "one")
