"""A few inputs for each parser, and parsers in which the fuzzer must find something.

`make fuzz N=1000000` runs more. The inputs are the same in each run.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys

import pytest

from distributed_input.api.resource.problems import ResourceError
from testing.fuzz import run
from testing.fuzz.__main__ import shares
from testing.fuzz.mutate import generated
from testing.fuzz.target import Subject
from testing.fuzz.targets import TARGETS, files

INPUTS = 2000
SECONDS = 300
PARTS = sorted({one.name.partition("/")[0] for one in TARGETS})


def printed(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("part", PARTS)
def test_no_input_breaks_a_parser(part: str) -> None:
    output = printed("testing.fuzz", "--n", str(INPUTS), "--only", f"{part}/")
    count = re.search(r"^(\d+) inputs, \d+ targets, 0 findings$", output, re.M)
    assert count is not None, output
    assert int(count[1]) >= INPUTS


@pytest.mark.timeout(SECONDS)
def test_the_fuzzer_finds_what_is_broken() -> None:
    found = json.loads(printed("tests.fuzz.broken"))
    causes = {name: causes[0] if causes else "" for name, causes in found.items()}
    assert causes.pop("refuse") == ""
    expected = {
        "fail": "KeyError at .*undeclared",
        "spin": "more than 0.1 s of CPU time",
        "leak": "the process has grown by",
        "allocate": "MemoryError",
        "crash": "the process ended in the parser with code -",
        "block": "the parser is blocked",
    }
    assert causes.keys() == expected.keys()
    for name, cause in expected.items():
        assert re.match(cause, causes[name]), (name, causes[name])


def test_an_input_depends_on_nothing_but_its_generator() -> None:
    subject = Subject(bytes, [b'{"a": [1, {"b": "c"}]}', b"{}"], (), is_json=True)
    made = [[generated(subject, random.Random(seed)) for seed in range(200)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 150


def test_a_seed_that_its_parser_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str) -> None:
        raise ResourceError("refused")

    monkeypatch.setattr(files, "parse_all", refuse)
    (target,) = (one for one in TARGETS if one.name == "files/resources")
    with pytest.raises(ResourceError, match="refused"):
        run.measure(target, 0, 0, None)


def test_all_targets_share_the_inputs() -> None:
    assert sum(shares(TARGETS, 1000)) >= 1000
    assert min(shares(TARGETS, 1)) == 1
    assert len({one.name for one in TARGETS}) == len(TARGETS)
