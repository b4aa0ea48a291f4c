"""The dashboard in a real browser: with made-up samples of each kind, and with a real run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import distributed_input
from distributed_input.api.proto.types_pb2 import StalledSplit
from distributed_input.runner.commands import dashboard
from distributed_input.runner.dashboard.history import InputHistory
from distributed_input.runner.dashboard.server import serving
from distributed_input.runner.display.stats import StatusSample
from testing import browser
from testing.browser import BrowserMissingError, Opened
from testing.integration.run_supervision.harness import wait_until
from tests.unit.distributed_input.runner.samples import consumer, worker

EMPTY: dict[str, Any] = {"interval": 2, "stale_after": 11.0, "error": None, "inputs": []}
HOSTILE = "<img src=x onerror=alert(1)>"
ROWS = """\
import tensorflow as tf

def dataset_fn(context):
    rows = tf.data.Dataset.range(400).shard(context.num_input_pipelines, context.input_pipeline_id)
    return rows.batch(context.get_per_replica_batch_size(8))
"""


@pytest.fixture(scope="module")
def has_browser():
    """Skip the test if there is no browser: before it starts processes, and also with CI=true."""
    try:
        browser.program()
    except BrowserMissingError as missing:
        pytest.skip(str(missing))


def opened(url: str) -> Opened:
    page = browser.open_page(url)
    assert page.console == []
    return page


def text(page: Opened, kind: str = "body") -> str:
    """Return the text of the first element with this class, or of the whole page."""
    body = re.sub(r"(?s)<(script|style)>.*?</\1>", "", page.dom)
    found = (
        body if kind == "body" else re.split(f'class="[^"]*\\b{kind}\\b', body)[1].partition(">")[2]
    )
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", found)))


def made_up() -> dict[str, Any]:
    """Return the values of an input whose trainer waits for busy workers."""
    history = InputHistory("train")
    for second in (0, 5, 10):
        trainer = consumer(
            rows=second * 100, batches=1 + second, epoch=3, wall_seconds=second,
            wait_seconds=second * 0.6, buffer_fill=0.25, replay_mismatches=2,
        )  # fmt: skip
        stalled = [StalledSplit(step="describing", dataset=HOSTILE, seconds=7)] * 3
        busy = worker(
            parallelism=2, busy_seconds=second * 2.0, permit_seconds=second * 2.0,
            rows=second * 100, open_streams=4, stalled=stalled,
        )  # fmt: skip
        history.add(StatusSample([trainer], [busy]), float(second))
    old = {"input": HOSTILE, "place": None, "error": "it did not respond", "seconds_old": 100.0}
    shared = {"problems": [f"budget {HOSTILE}"], "chart": history.chart(10.0)}
    now = {"input": "train", "place": "pid 7, /home", "error": None, "seconds_old": 0.0}
    values = {**shared, **dashboard.view(history)}
    return {**EMPTY, "inputs": [{**now, **values}, {**old, **values}]}


def without_answer() -> dict[str, Any]:
    """Return values that nothing has renewed for long, without a cause."""
    first = made_up()["inputs"][0]
    return {**EMPTY, "error": "another one", "inputs": [{**first, "seconds_old": 100.0}]}


@pytest.mark.usefixtures("has_browser")
def test_the_page_shows_each_figure_and_treats_names_as_text():
    with serving(0, made_up) as url:
        page = opened(url)
    shown = text(page)
    assert "train, pid 7, /home budget" in shown
    assert "Starved: train/0 waits 60 % of its time for the dataset." in shown
    assert "train/0 waits for dataset: 60 % of its time" in shown
    assert "Storage Dataset 4 open splits Workers 100 rows/s 1 worker, 100 % busy" in shown
    assert "25 % of buffer filled Trainer 100 rows/s 1 trainer" in shown
    assert text(page, "culprit").split()[0] == "Dataset"
    assert "train/0: 2 replays made other rows than before" in shown
    assert f"no progress: describing dataset {HOSTILE} has taken 7 s, and 2 more splits" in shown
    assert "No answer for 2 min; the figures are from then. Cause: it did not respond" in shown
    # Names and messages come from others. They are text, not elements.
    assert shown.count(HOSTILE) == 7
    assert "<img" not in page.dom.partition("<script>")[0]
    assert 'data-state="stale"' in page.dom


@pytest.mark.usefixtures("has_browser")
def test_old_figures_are_marked_also_without_a_cause():
    with serving(0, without_answer) as url:
        page = opened(url)
    shown = text(page)
    assert "another one" in shown
    assert "No answer for 2 min; the figures are from then. " in shown
    assert "Cause:" not in shown
    assert 'data-state="stale"' in page.dom


def test_a_browser_that_cannot_be_had_is_one_line(tmp_path, monkeypatch):
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\nexit 100\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(
        BrowserMissingError, match=r"^chromium.* cannot be downloaded: .*100"
    ) as one:
        browser.program()
    assert "\n" not in str(one.value)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Start the processes of an input, and read it in a thread until the end of the block."""
    end = threading.Event()

    def read() -> None:
        with distributed_input.connect("train") as train:
            while not end.is_set():
                for _ in train.numpy():
                    pass

    resource = {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": "train"},
        "spec": {
            "dataset": {
                "type": "EntryPoint",
                "entryPoint": {
                    "function": "rows:dataset_fn",
                    "source": {"type": "Path", "path": str(folder)},
                },
            }
        },
    }
    with distributed_input.local(resource, workers=1):
        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


@contextmanager
def started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command; end it with the block, also after a failure."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()


@pytest.mark.usefixtures("has_browser")
def test_a_run_on_this_machine(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow")
    (tmp_path / "rows.py").write_text(ROWS)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    command = (
        sys.executable,
        "-m",
        "distributed_input.cli",
        "dashboard",
        "--port",
        "0",
        "--seconds",
        "0.5",
    )
    with started(command) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[1]
        assert "Nothing to show yet" in text(opened(url))
        with reading(tmp_path):

            def inputs() -> list[dict[str, Any]]:
                with urllib.request.urlopen(f"{url}data.json", timeout=20) as answer:
                    found: list[dict[str, Any]] = json.load(answer)["inputs"]
                return found

            wait_until(lambda: any(c["rows_per_second"] for one in inputs() for c in one["chart"]))
            page = opened(url)
            assert 'data-state="live"' in page.dom
            assert "train/0" in text(page)
            assert "worker-1" in text(page), "the path of its socket"
            token = next(tmp_path.glob("distributed-input-*/run-*/tokens/train")).read_text()
            assert token not in page.dom + json.dumps(inputs()) + url
    assert server.returncode == 0
