"""User errors: each gives one clear message with the field and the remedy, and no hang.

tests/compat covers wrong use of documented TensorFlow functions.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import distributed_input
from distributed_input.api import errors
from distributed_input.api.protocol import PROTOCOL
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.datasets import broken

pytestmark = pytest.mark.timeout(100)
SECONDS = 15.0
"""Longer than any message takes, and shorter than the timeout of a hang."""
ENTRY_POINTS: dict[str, tuple[type[Exception], str]] = {
    "no_such_module:function": (
        errors.ConfigError,
        r"spec\.dataset\.entryPoint\.function: no module 'no_such_module' .* check the name",
    ),
    "rows:no_such_function": (
        errors.ConfigError,
        r"entryPoint\.function: module rows has no 'no_such_function'; it has .*numbered",
    ),
    "broken:raises": (
        errors.DatasetFnError,
        r"(?s)entry point broken:raises failed: AttributeError: .*"
        r'File "[^"]*broken\.py", line \d+, in raises\n *return folder\.joinpath\("rows"\)',
    ),
    "broken:raises_slowly": (errors.DatasetFnError, "OSError: the bucket is gone"),
    "broken:imports_missing_package": (
        errors.DatasetFnError,
        r"(?s)No module named 'no_such_package'.*line \d+, in imports_missing_package",
    ),
    "broken:no_dataset": (
        errors.SpecError,
        r"entry point broken:no_dataset returned int\. Return a tf\.data\.Dataset",
    ),
}
LATE: dict[str, tuple[type[Exception], str]] = {
    "broken:raises_late": (errors.DatasetFnError, r"(?s)the dataset failed: .*assert.*30"),
    "broken:raises_in_python": (
        errors.DatasetFnError,
        r"(?s)the dataset failed: OSError: row 30 cannot be read \(row 30 of split \d\)\n"
        r'.*broken\.py", line \d+, in raises_in_python\n *raise OSError',
    ),
    "broken:differing": (
        errors.SpecError,
        r"split 3 are not those of the job: component 'value' is dense float32 .* int64",
    ),
    "broken:mixed_widths": (
        errors.SpecError,
        r"component 'value'.*(pad|ragged_batch)",
    ),
}


@contextlib.contextmanager
def raises_soon(kind: type[Exception], message: str) -> Iterator[None]:
    """Require one error of this kind from the block, within `SECONDS`."""
    began = time.monotonic()
    with pytest.raises(kind, match=message):
        yield
    assert time.monotonic() - began < SECONDS


def inputs_of(entry_points: Any, **fields: Any) -> dict[str, Any]:
    """Return an input for each entry point, with a name derived from it."""
    return {one.replace(":", "-").replace("_", "-"): spec(one, **fields) for one in entry_points}


def name_of(entry_point: str) -> str:
    return entry_point.replace(":", "-").replace("_", "-")


@pytest.fixture(scope="module")
def sidecar(shared: Cluster) -> Sidecar:
    inputs = inputs_of([*ENTRY_POINTS, *LATE, "broken:nothing"], globalBatchSize=8, numSplits=4)
    inputs["good"] = spec("rows:numbered", globalBatchSize=8, numSplits=4)
    inputs["twice"] = spec("rows:numbered", globalBatchSize=8, numSplits=4, epochs=2)
    inputs["traced"] = spec(numSplits=4)
    return shared.add_sidecars(inputs)[0]


@pytest.mark.parametrize("entry_point", [*ENTRY_POINTS, *LATE])
def test_errors_in_entry_points(cluster: Cluster, sidecar: Sidecar, entry_point: str) -> None:
    kind, message = {**ENTRY_POINTS, **LATE}[entry_point]
    with readers.connect(sidecar, name_of(entry_point)) as data:
        with raises_soon(kind, message):
            for _ in data.numpy():
                pass


def test_an_iterator_raises_its_error_again_and_not_the_end_of_the_epoch(
    cluster: Cluster, sidecar: Sidecar
) -> None:
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with readers.connect(sidecar, name_of("broken:raises_late")) as data:
        for create in (data.numpy, lambda: iter(data.distribute(strategy))):
            batches = create()
            for _ in range(3):
                with pytest.raises((errors.DatasetFnError, tf.errors.OpError), match="assert"):
                    for _ in batches:
                        pass


def test_a_dataset_without_rows_is_valid(cluster: Cluster, sidecar: Sidecar) -> None:
    with readers.connect(sidecar, "broken-nothing") as data:
        assert [list(data.numpy()) for _ in range(2)] == [[], []]


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (
            broken.raises,
            errors.DatasetFnError,
            r"(?s)dataset_fn for split 0 of 4 failed: AttributeError.*in raises\n *return folder",
        ),
        (
            broken.differing,
            errors.SpecError,
            r"split 3 .* component 'value' is dense float32 \(\) instead of dense int64 \(\)",
        ),
        (broken.no_dataset, errors.DatasetFnError, r"returned a int .* must return a tf\.data"),
    ],
)
def test_errors_in_functions_of_the_trainer(
    cluster: Cluster, sidecar: Sidecar, function: Callable[..., Any], kind: Any, message: str
) -> None:
    with readers.connect(sidecar, "traced") as data, raises_soon(kind, message):
        data.dataset(function)


def test_a_batch_larger_than_the_buffer(cluster: Cluster) -> None:
    one = spec("wide:wide", {"width": 300_000}, globalBatchSize=4, buffer="1Mi", numSplits=2)
    (sidecar,) = cluster.add_sidecars({"too-wide": one})
    with readers.connect(sidecar) as data:
        with raises_soon(
            errors.ConfigError, r"1,200,\d+ bytes .* Set spec\.sidecar\.buffer to .*Mi"
        ):
            next(data.numpy())


def test_a_missing_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRIBUTED_INPUT_DIR", str(tmp_path))
    with raises_soon(
        errors.UnavailableError, rf"no sidecar at {tmp_path} for 1 s .*`distributed-inp"
    ):
        distributed_input.connect(timeout=1)


@pytest.mark.parametrize(
    ("versions_away", "remedy"), [(2, "upgrade this process"), (-1, "upgrade the train")]
)
def test_a_trainer_two_protocol_versions_away(
    cluster: Cluster,
    sidecar: Sidecar,
    monkeypatch: pytest.MonkeyPatch,
    versions_away: int,
    remedy: str,
) -> None:
    monkeypatch.setattr("distributed_input.trainer.session.PROTOCOL", PROTOCOL + versions_away)
    with raises_soon(errors.ProtocolError, rf"the trainer's .* package uses .*{remedy}"):
        readers.connect(sidecar, "good")


def test_wrong_names_of_inputs(cluster: Cluster, sidecar: Sidecar) -> None:
    with raises_soon(errors.ConfigError, r"serves no input 'bad'; it serves .*good"):
        readers.connect(sidecar, "bad")
    with raises_soon(errors.ConfigError, r"serves .*good.*connect\(\) needs the name of one"):
        readers.connect(sidecar)


def test_datasets_from_both_sides_or_from_neither(cluster: Cluster, sidecar: Sidecar) -> None:
    with readers.connect(sidecar, "good") as data:
        with raises_soon(
            errors.ConfigError, r"names its dataset \(rows:numbered\) .*omit the argument, or"
        ):
            data.dataset(tf.data.Dataset.range(3))
    with readers.connect(sidecar, "traced") as data:
        with raises_soon(errors.ConfigError, r"names no dataset.*entryPoint, or pass dataset_fn"):
            data.dataset()


def test_a_trainer_that_holds_all_batches(cluster: Cluster) -> None:
    one = spec("wide:wide", {"rows": 32}, globalBatchSize=2, buffer="1Mi", timeoutSeconds=3)
    (sidecar,) = cluster.add_sidecars({"hoarded": one})
    with readers.connect(sidecar) as data:
        held: list[Any] = []
        with raises_soon(
            errors.UnavailableError, r"holds all 3 batches .* raise spec\.sidecar\.buff"
        ):
            held.extend(data.numpy())
        assert len(held) == 3


def test_more_epochs_than_the_resource_has(cluster: Cluster, sidecar: Sidecar) -> None:
    with readers.connect(sidecar, "twice") as data:
        assert [len(list(data.numpy())) for _ in range(2)] == [13, 13]
        with raises_soon(errors.ConfigError, r"has 2 epochs \(spec\.epochs\).* Raise spec\.epochs"):
            next(data.numpy())


def test_a_wrong_token(cluster: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("not-the-token-of-this-cluster")
    one = spec("rows:numbered", globalBatchSize=8)
    (sidecar,) = cluster.add_sidecars({"intruder": one}, token=wrong)
    with readers.connect(sidecar) as data:
        with raises_soon(errors.TerminalError, r"missing or wrong token: set --token-file"):
            next(data.numpy())


def test_a_worker_imports_only_the_modules_of_its_list(own_cluster: Cluster) -> None:
    """Which entry point a job has, a client with the input's token decides."""
    own_cluster.add_workers(1, "--modules=rows,other")
    targets = ("rows:numbered", "os:system", "broken:raises")
    (sidecar,) = own_cluster.add_sidecars(inputs_of(targets, globalBatchSize=8, numSplits=4))
    with readers.connect(sidecar, "rows-numbered") as data:
        assert readers.ids(data.numpy())
    for target in ("os:system", "broken:raises"):
        with readers.connect(sidecar, name_of(target)) as data:
            module = target.partition(":")[0]
            text = rf"may not call functions of module {module}: use one of the modules rows, other"
            with raises_soon(errors.ConfigError, text):
                list(data.numpy())
