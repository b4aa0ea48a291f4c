"""The command that prints logs: kubectl's arguments, and the logs of local runs."""

from __future__ import annotations

import os

import pytest

from distributed_input import cli
from distributed_input.runner import folders
from distributed_input.runner.commands.logs import kubectl_command


def test_dispatcher_and_workers_of_an_input():
    assert kubectl_command("digits", "team", None, 20, follow=False) == [
        *("kubectl", "logs", "--namespace", "team"),
        *("--selector", "distributed-input.dev/input=digits", "--all-containers"),
        *("--prefix", "--tail", "20", "--max-log-requests", "100"),
    ]


def test_one_part_of_an_input():
    command = kubectl_command("digits", None, "worker", 5, follow=True)
    assert command[2:5] == [
        "--selector",
        "distributed-input.dev/input=digits,app.kubernetes.io/component=worker",
        "--all-containers",
    ]
    assert command[-1] == "--follow"


def test_sidecars_are_containers_of_the_trainers_pods():
    command = kubectl_command("digits", None, "sidecar", 5, follow=False)
    assert "distributed-input.dev/reads-digits=true" in command
    assert command[command.index("--container") + 1] == "distributed-input"


def test_a_local_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with folders.create(None, {"XDG_RUNTIME_DIR": str(tmp_path)}) as run:
        run.logs.mkdir(exist_ok=True)
        run.log("worker-0").write_text("one\ntwo\n")
        run.log("sidecar-0").write_text("three\n")
        assert cli.main(["logs", "--tail", "1"]) == 0
        assert capsys.readouterr().out == "[sidecar-0] three\n[worker-0] two\n"
        assert cli.main(["logs", "--part", "worker"]) == 0
        assert capsys.readouterr().out == "[worker-0] one\n[worker-0] two\n"
        (run.path / "tokens").mkdir()
        (run.path / "tokens" / "digits").touch()
        assert cli.main(["logs", "digits", "--part", "sidecar"]) == 0
        assert capsys.readouterr().out == "[sidecar-0] three\n"
        assert cli.main(["logs", "digits", "--follow"]) == 2
        assert "of an input in a cluster" in capsys.readouterr().err
        with folders.create(None, {"XDG_RUNTIME_DIR": str(tmp_path)}):
            assert cli.main(["logs", "--part", "sidecar"]) == 0
            place = f"pid {os.getpid()}, {os.getcwd()}:\n"
            printed = capsys.readouterr().out
            assert printed.count(place) == 2
            assert f"{place}[sidecar-0] three\n" in printed


@pytest.mark.parametrize("flags", [[], ["--follow"], ["-n", "team"]])
def test_without_a_run_or_a_name(flags, tmp_path, monkeypatch, called):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert "set NAME" in called(["logs", *flags], 2).err


KUBECTL = """\
#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case "$1 $3" in
  "get digits") echo '{}' ;;
  get*) echo "E1 memcache.go" >&2
        echo "Error from server (NotFound): distributedinputs \\"$3\\" not found" >&2; exit 1 ;;
  logs*) exit 7 ;;
esac
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of a kubectl that has one input."""
    script = tmp_path / "kubectl"
    script.write_text(KUBECTL)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_an_input_that_does_not_exist(folder, called):
    assert called(["logs", "digts", "-n", "team"], 2).err == (
        "distributed-input logs: `kubectl get distributedinputs.distributed-input.dev "
        "digts --namespace team --output json`: Error from server (NotFound): distributedinputs "
        '"digts" not found\n'
    )
    assert "logs" not in (folder / "calls").read_text()


def test_the_status_is_that_of_kubectl(folder):
    assert cli.main(["logs", "digits"]) == 7
    assert (folder / "calls").read_text().splitlines()[1].startswith("logs --selector")


def test_without_kubectl(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["logs", "digits"]) == 2
    assert (
        capsys.readouterr().err == "distributed-input logs: kubectl is not installed: install it\n"
    )
