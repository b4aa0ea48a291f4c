"""The layout that CONTRIBUTING describes: sizes, unique names, and the place of each test."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"
SOURCES = {
    "distributed_input": ROOT / "sidecar" / "src" / "distributed_input",
    "distributed_input_operator": ROOT / "operator" / "src" / "distributed_input_operator",
}
MOST_MODULES = 15
MOST_LINES = 400
REASON = "This module is long because"
"""What the docstring of a longer module contains."""

_UNIT = "tests/unit/distributed_input"
_CLIENT = "tests/integration/trainer"
_RUN = "tests/integration/run"
TESTED_ELSEWHERE = {
    # Processes, sockets and TensorFlow's own classes: tested as users see them.
    "distributed_input/trainer/input.py": f"{_CLIENT}/test_checkpoints.py",
    "distributed_input/trainer/tensorflow/checkpoint.py": f"{_CLIENT}/test_checkpoints.py",
    "distributed_input/trainer/tensorflow/dataset.py": f"{_CLIENT}/test_zero_copy.py",
    "distributed_input/trainer/tensorflow/distribute.py": "tests/compat/test_distribute.py",
    "distributed_input/keras.py": f"{_CLIENT}/test_keras_fit.py",
    # They need frameworks that have an environment of their own.
    "distributed_input/trainer/frameworks/keras.py": "tests/frameworks/test_frameworks.py",
    "distributed_input/trainer/frameworks/keras_epochs.py": (
        f"{_UNIT}/trainer/tensorflow/test_keras_fit.py"
    ),
    "distributed_input/transformers.py": "tests/frameworks/test_frameworks.py",
    "distributed_input/trainer/timed_trainer.py": f"{_RUN}/test_bench.py",
    "distributed_input/runner/display/monitor.py": f"{_RUN}/test_run_supervision.py",
    "distributed_input/runner/local.py": f"{_RUN}/test_local.py",
    "distributed_input/runner/trainer_proxy.py": f"{_RUN}/test_local.py",
    "distributed_input/runner/processes/process_group.py": f"{_RUN}/test_run_supervision.py",
    "distributed_input/runner/processes/trainers.py": f"{_RUN}/test_run_supervision.py",
    "distributed_input/runner/supervisor.py": f"{_RUN}/test_run_supervision.py",
    # Contracts that have no code.
    "distributed_input/worker/datasets/boundary_files.py": (
        f"{_UNIT}/worker/store/test_stored_prefixes.py"
    ),
    "distributed_input/worker/serve.py": "tests/integration/delivery/test_exactly_once.py",
    "distributed_input_operator/controller/control_loop.py": (
        "tests/operator/test_missed_deletions.py"
    ),
    "distributed_input_operator/controller/reconcile_input.py": "tests/operator/test_reconcile.py",
    "distributed_input_operator/main.py": "tests/operator/test_reconcile.py",
    "distributed_input/runner/dispatchers.py": f"{_UNIT}/runner/commands/test_status.py",
    # Values and protocols without logic.
    "distributed_input/link/errors.py": f"{_UNIT}/sidecar/delivery/test_epoch_run.py",
    "distributed_input/rows/stage.py": f"{_UNIT}/sidecar/test_streams.py",
    "distributed_input/api/local_workers.py": f"{_UNIT}/sidecar/streams/test_local_share.py",
    "distributed_input/dispatcher/limits.py": f"{_UNIT}/dispatcher/test_state.py",
    "distributed_input/sidecar/steps/row_source.py": (
        f"{_UNIT}/sidecar/steps/test_epoch_reader.py"
    ),
    "distributed_input/sidecar/streams/stream_context.py": (
        f"{_UNIT}/sidecar/streams/test_split_stream.py"
    ),
    "distributed_input_operator/objects/kind.py": (
        "tests/unit/distributed_input_operator/kube/test_owner.py"
    ),
    "distributed_input_operator/metrics.py": "tests/operator/test_prometheus.py",
    "distributed_input_operator/kube/kinds.py": "tests/operator/test_permissions.py",
    "distributed_input_operator/certificates/x509_parts.py": (
        "tests/unit/distributed_input_operator/certificates/test_renewal.py"
    ),
    "distributed_input/graph/random/selecting.py": f"{_UNIT}/graph/random/test_selections.py",
    "distributed_input/graph/definition/datasets.py": (
        f"{_UNIT}/graph/analysis/test_graph_analysis.py"
    ),
    "distributed_input/graph/definition/serialization.py": (
        f"{_UNIT}/graph/definition/test_canonical.py"
    ),
    "distributed_input/graph/random/generators.py": f"{_UNIT}/graph/random/test_seeds.py",
}
"""Modules without a unit test of their own, and the test file that covers them."""


def modules(distribution: str) -> Iterator[Path]:
    for path in sorted(SOURCES[distribution].rglob("*.py")):
        if not path.name.startswith("__") and not path.name.endswith("_pb2.py"):
            yield path


def relative(path: Path) -> str:
    """Return the path as in `distributed_input/rows/blocks.py`."""
    (root,) = (one.parent for one in SOURCES.values() if one in path.parents)
    return path.relative_to(root).as_posix()


@pytest.mark.parametrize("distribution", SOURCES)
def test_no_package_has_more_than_15_modules(distribution: str) -> None:
    count: dict[Path, int] = defaultdict(int)
    for path in modules(distribution):
        count[path.parent] += 1
    assert {str(folder): n for folder, n in count.items() if n > MOST_MODULES} == {}


def test_no_folder_of_tests_has_more_than_15_modules() -> None:
    count: dict[str, int] = defaultdict(int)
    for path in [*(ROOT / "testing").rglob("*.py"), *(ROOT / "tests").rglob("test_*.py")]:
        if not path.name.startswith("__"):
            count[path.parent.relative_to(ROOT).as_posix()] += 1
    assert {folder: n for folder, n in count.items() if n > MOST_MODULES} == {}


def test_a_module_above_400_lines_says_why() -> None:
    sources = [path for distribution in SOURCES for path in modules(distribution)]
    others = [path for folder in ("testing", "tests") for path in (ROOT / folder).rglob("*.py")]
    long = [
        str(path.relative_to(ROOT))
        for path in [*sources, *others]
        if len((text := path.read_text()).splitlines()) > MOST_LINES
        and REASON not in (ast.get_docstring(ast.parse(text)) or "")
    ]
    assert long == []


@pytest.mark.parametrize("distribution", SOURCES)
def test_a_class_name_is_used_once(distribution: str) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules(distribution):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(relative(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("distribution", SOURCES)
def test_every_package_has_a_docstring(distribution: str) -> None:
    packages = {path.parent for path in modules(distribution)}
    without = [
        str(one)
        for one in packages
        if not ast.get_docstring(ast.parse((one / "__init__.py").read_text()))
    ]
    assert without == []


@pytest.mark.parametrize("distribution", SOURCES)
def test_the_test_of_a_module_is_found_by_its_path(distribution: str) -> None:
    missing = []
    for path in modules(distribution):
        name = relative(path)
        test = UNIT / Path(name).parent / f"test_{path.name}"
        if not test.exists() and not (ROOT / TESTED_ELSEWHERE.get(name, "missing")).exists():
            missing.append(name)
    assert missing == []


def test_every_unit_test_has_its_module() -> None:
    orphans = []
    for distribution, source in SOURCES.items():
        for test in sorted((UNIT / distribution).rglob("test_*.py")):
            module = source / test.relative_to(UNIT / distribution).with_name(test.name[5:])
            if not module.exists() and not module.with_suffix("").is_dir():
                orphans.append(str(test.relative_to(UNIT)))
    assert orphans == []
