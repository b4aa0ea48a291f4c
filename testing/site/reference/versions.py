"""The page about versions, from the packages' metadata, the lock, the chart and the tests."""

from __future__ import annotations

import ast
import re
from importlib import metadata

import yaml

from testing.cluster import binaries
from testing.kubernetes_versions import results
from testing.site.reference.markdown import table
from testing.site.stage import ROOT

_PACKAGES = ("tensorflow", "grpcio", "protobuf", "numpy", "pydantic")


def page() -> str:
    """Return the page."""
    name, version = "distributed-input", metadata.version("distributed-input")
    locked = dict(re.findall(r'^name = "(.+)"\nversion = "(.+)"$', _lock(), re.MULTILINE))
    chart = yaml.safe_load((ROOT / "charts/distributed-input/Chart.yaml").read_text())
    text = (
        f"# Versions\n\nOf release {version}. The lowest versions are those that the "
        "packages require. Tests run with the versions in the last column.\n\n"
    )
    floors = _floors(name)
    rows = [[one, f"{floors[one]} or later", locked[one]] for one in _PACKAGES]
    pythons = ", ".join(_classifiers(name, "Programming Language :: Python :: 3."))
    rows.insert(0, ["Python", pythons, pythons])
    kubernetes = chart["kubeVersion"].removeprefix(">=").removesuffix("-0")
    tested = [_built(), *results.read()]
    rows.append(["Kubernetes", f"{kubernetes} or later", ", ".join(sorted(tested))])
    rows.append(["Helm", "3", binaries.version("helm")])
    text += table(("Part", "Supported", "Tested with"), rows)
    text += _kubernetes()
    text += (
        "## Python and TensorFlow\n\nThese pairs install the wheels and train (`make matrix`).\n\n"
    )
    text += table(("Python", "TensorFlow"), _pairs())
    text += (
        "## Releases together\n\nAn operator runs images of its own release, of the two releases "
        "before and of the next one. See [upgrades](../upgrades.md).\n\n## Platforms\n\n"
    )
    systems = _classifiers(name, "Operating System :: ")
    text += f"The packages are for {', '.join(systems)}. The images are for {_platforms()}. "
    text += "See [Linux, macOS and arm64](../platforms.md).\n"
    return text


def _built() -> str:
    """Return the version of Kubernetes that all tests use."""
    return binaries.version("kubernetes").removeprefix("v")


def _kubernetes() -> str:
    """Return what the tests found on the lowest and the newest Kubernetes."""
    found = results.read()
    rows = [
        [version, str(one.passed), str(one.skipped), f"{one.seconds} s"]
        if (one := found.get(version))
        else [version, "no complete run yet", "", ""]
        for version in results.VERSIONS.values()
    ]
    text = (
        f"## Kubernetes\n\nAll tests run with {_built()}. `make kubernetes-versions` runs those "
        "of the chart and of the operator that depend on the API server. It runs them with the API "
        "server, the controllers and the scheduler of the lowest and the newest version, without "
        "nodes. The last runs without a failure:\n\n"
    )
    text += table(("Kubernetes", "Tests passed", "Skipped", "Time"), rows)
    return text + (
        "Tests of the admission policies are skipped on Kubernetes 1.29, which does not have "
        "them. The chart then installs none: see [security](../security.md).\n\n"
    )


def _lock() -> str:
    return (ROOT / "uv.lock").read_text()


def _floors(name: str) -> dict[str, str]:
    """Return the lowest version of each requirement, also of the extras."""
    required = metadata.requires(name) or []
    found = (re.match(r"([\w.-]+)>=([\d.]+)", one) for one in required)
    return {one[1]: one[2] for one in found if one}


def _classifiers(name: str, prefix: str) -> list[str]:
    """Return the last words of the classifiers that begin with a prefix."""
    given = metadata.metadata(name).get_all("Classifier") or []
    return [one.rpartition(" :: ")[2] for one in given if one.startswith(prefix)]


def _pairs() -> list[list[str]]:
    """Return the versions of the test that installs the wheels and trains."""
    tree = ast.parse((ROOT / "tests/publishing/test_install.py").read_text())
    values = {"LOWEST": "", "NEWEST": ""}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            names = [one.id for one in node.targets[0].elts if isinstance(one, ast.Name)]
            if isinstance(node.value, ast.Tuple):
                values.update(zip(names, map(_constant, node.value.elts), strict=True))
    (test,) = (
        one
        for one in tree.body
        if isinstance(one, ast.FunctionDef) and one.name == "test_a_new_project_trains"
    )
    (marked,) = test.decorator_list
    assert isinstance(marked, ast.Call)
    assert isinstance(marked.args[1], ast.List)
    pairs = []
    for one in marked.args[1].elts:
        parts = one.args if isinstance(one, ast.Call) else one.elts
        python, tensorflow = (values.get(getattr(p, "id", ""), _constant(p)) for p in parts[:2])
        pairs.append([python or "that of the checkout", tensorflow.replace(">=2.16", "newest")])
    return pairs


def _constant(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _platforms() -> str:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())
    steps = workflow["jobs"]["images"]["steps"]
    (found,) = (one["with"]["platforms"] for one in steps if "platforms" in one.get("with", {}))
    return " and ".join(found.split(","))
