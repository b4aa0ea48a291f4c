"""The text of a local run. `tests/integration/run/test_local.py` has its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distributed_input.api import environment
from distributed_input.api.errors import ConfigError
from distributed_input.runner import local
from distributed_input.runner.local import LocalRun

RUN = f"""
import os
import sys
print('{{"{environment.NAMES_ENV}": "train,eval"}}', flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def fake_run(monkeypatch):
    monkeypatch.setattr(local, "_command", lambda *_: [sys.executable, "-c", RUN])
    for name in local._VARIABLES:
        monkeypatch.setenv(name, "")


def test_a_dict_in_a_folder_whose_name_is_not_utf_8_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(os, "getcwd", lambda: "/caf\udce9")
    resource = {"spec": {"dataset": {"entryPoint": {"source": {"path": "."}}}}}
    with pytest.raises(ConfigError, match=r"^'/caf\\udce9': .*is not UTF-8 .*PYTHONUTF8=1$"):
        local.local(resource)


def test_its_text_has_the_inputs_the_workers_and_the_state():
    run = LocalRun(Path("input.yaml"), 4, 9.0)
    assert repr(run) == f"<LocalRun of train, eval; workers: 4; running, pid {run.pid}>"
    run.close()
    assert repr(run) == "<LocalRun of train, eval; workers: 4; closed>"


def test_its_text_says_if_it_has_ended_by_itself():
    run = LocalRun(Path("input.yaml"), None, 9.0)
    run._process.kill()
    run._process.wait()
    expected = "<LocalRun of train, eval; workers: as in the resource; ended by itself>"
    assert repr(run) == expected
    run._restore()
    run._stop()


def test_it_can_be_imported_without_the_packages_of_commands():
    """The run that it starts prints the remedy."""
    hidden = "import sys; sys.modules.update(click=None, psutil=None)"
    code = f"{hidden}; import distributed_input.runner.local"
    subprocess.run([sys.executable, "-c", code], check=True)
