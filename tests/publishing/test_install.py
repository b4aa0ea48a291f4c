"""A user installs the artefacts from an index, without this checkout, and trains."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from testing.publishing import environments
from testing.publishing.artifacts import ROOT
from testing.publishing.environments import Environment

LOWEST, NEWEST = "3.10", "3.13"
OLDEST = "==2.16.*" if sys.version_info < (3, 13) else ">=2.16"
"""TensorFlow's oldest version for this Python."""
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
# A first run downloads TensorFlow.
pytestmark = pytest.mark.timeout(1200)


def create(folder: Path, index: str, version: str, pip: bool = False) -> Environment:
    python = environments.interpreter(version)
    if not python:
        pytest.skip(f"this machine has no Python {version}")
    return environments.create(folder / "env", index, python, pip)


@pytest.mark.parametrize(
    ("version", "tensorflow"),
    [
        (OWN, ">=2.16"),
        pytest.param(LOWEST, "==2.16.*", marks=pytest.mark.matrix),
        pytest.param(LOWEST, ">=2.16", marks=pytest.mark.matrix),
        pytest.param("3.12", "==2.16.*", marks=pytest.mark.matrix),
        pytest.param(NEWEST, ">=2.16", marks=pytest.mark.matrix),
    ],
)
def test_a_new_project_trains(tmp_path: Path, index: str, version: str, tensorflow: str) -> None:
    """Run the commands in docs/quickstart.md, in a new environment."""
    _, install, init, validate, run = quickstart()
    assert install == "pip install 'distributed-input[run]'"
    env = create(tmp_path, index, version)
    env.install("distributed-input[run]", tensorflow=tensorflow)
    assert env.run("bash", "-euc", init, cwd=tmp_path).returncode == 0
    project = tmp_path / "photos"
    with (project / "train.py").open("a") as program:
        program.write("    print('imported', distributed_input.__file__)\n")

    checked = env.run(*shlex.split(validate), cwd=project)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    trained = env.run(*shlex.split(run.replace(" -- ", " --report r.json -- ")), cwd=project)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    report = json.loads((project / "r.json").read_text())["inputs"]["photos"]
    assert (report["epochs"], report["rows"]) == (2, 40_000)
    assert f"imported {env.folder}/lib/python{version}/site-packages/" in trained.stdout


def quickstart() -> list[str]:
    """Return the commands of the first block of docs/quickstart.md."""
    page = (ROOT / "docs" / "quickstart.md").read_text()
    return page.partition("```sh\n")[2].partition("```")[0].splitlines()


@pytest.mark.parametrize(
    ("version", "tensorflow"),
    [
        (OWN, OLDEST),
        pytest.param(LOWEST, "==2.16.*", marks=pytest.mark.matrix),
        pytest.param("3.12", "==2.16.*", marks=pytest.mark.matrix),
    ],
)
def test_the_template_keeps_the_packages_of_an_image(
    tmp_path: Path, index: str, dist: Path, version: str, tensorflow: str
) -> None:
    """Run the command in docs/trainer-image.md, in an environment with TensorFlow."""
    env = create(tmp_path, index, version, pip=True)
    env.install("tensorflow", tensorflow=tensorflow)
    before = packages(env)
    version_of = next(dist.glob("distributed_input-*.whl")).name.split("-")[1]
    values = (f"VERSION={version_of}", f"PIP_EXTRA_INDEX_URL={index}/simple/")
    done = env.run("env", *values, "bash", "-euc", template_command(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = packages(env)
    assert before.items() <= after.items()
    assert "distributed-input" in after
    consistent = env.run("python", "-m", "pip", "check", cwd=tmp_path)
    assert consistent.returncode == 0, consistent.stdout


def packages(env: Environment) -> dict[str, str]:
    listed = env.run("python", "-m", "pip", "list", "--format=json", cwd=env.folder)
    return {one["name"]: one["version"] for one in json.loads(listed.stdout)}


def template_command() -> str:
    """Return the command of the template's only RUN instruction."""
    page = (ROOT / "docs" / "trainer-image.md").read_text()
    template = page.partition("```dockerfile\n")[2].partition("```")[0]
    assert template.count("\nRUN ") == 1
    return template.partition("\nRUN ")[2]


@pytest.mark.parametrize("version", [LOWEST, NEWEST])
def test_what_an_error_says_to_install_is_installed(
    tmp_path: Path, index: str, version: str
) -> None:
    """A trainer's environment has only the client. Follow each error that names a package."""
    env = create(tmp_path, index, version, pip=True)
    env.pip_install("distributed-input")
    for command in ("sidecar", "dispatcher", "--version"):
        assert env.run("distributed-input", command, "--help", cwd=tmp_path).returncode == 0
    (tmp_path / "input.yaml").write_text(INPUT)
    run = env.run("distributed-input", "validate", "input.yaml", cwd=tmp_path)
    # test_a_new_project_trains installs this.
    assert remedy(run.stdout + run.stderr) == ["distributed-input[run]"]

    (tmp_path / "pod.yaml").write_text(POD)
    inject = ("distributed-input", "inject", "-f", "input.yaml", "-f", "pod.yaml", "--image", "i")
    missing = env.run(*inject, cwd=tmp_path)
    env.pip_install(*remedy(missing.stderr))
    injected = env.run(*inject, cwd=tmp_path)
    assert injected.returncode == 0, injected.stderr

    operator = ("distributed-input-operator", "--help")
    missing = env.run(*operator, cwd=tmp_path)
    assert missing.returncode == 1
    if version == LOWEST:
        assert "needs Python 3.11 or later" in missing.stderr
        return
    env.pip_install(*remedy(missing.stderr))
    started = env.run(*operator, cwd=tmp_path)
    assert started.returncode == 0, started.stderr


INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: photos}
spec:
  dataset:
    type: EntryPoint
    entryPoint: {function: "dataset:dataset_fn", source: {type: Path, path: .}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: trainer
  labels: {distributed-input.dev/inject: "true"}
  annotations: {distributed-input.dev/inputs: photos}
spec: {containers: [{name: trainer, image: some}]}
"""


def remedy(output: str) -> list[str]:
    """Return the requirements in the command that an error suggests."""
    (line,) = (one for one in output.splitlines() if "pip install " in one)
    return shlex.split(line.partition("pip install ")[2].rstrip("`"))
