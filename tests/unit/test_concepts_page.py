"""docs/concepts.md: its figures and numbers are what the code gives."""

from __future__ import annotations

import re

import pytest
import yaml

from distributed_input.order.splits import deal
from testing.documentation import concepts
from testing.documentation.blocks import ROOT, blocks

TEXT = concepts.PAGE.read_text(encoding="utf-8")
TERMS = (
    "input dataset_fn row trainer worker sidecar dispatcher epoch step split partition position "
    "replay buffer stall read-ahead autoscaling"
).split()
REMEDY = "run `python -m testing.documentation.concepts`"


def test_the_tables_are_what_the_code_gives() -> None:
    assert concepts.with_tables(TEXT) == TEXT, REMEDY


@pytest.mark.parametrize("name", concepts.figures())
def test_a_figure_is_what_the_code_gives(name: str) -> None:
    file = concepts.FIGURES / name
    assert file.read_text(encoding="utf-8") == concepts.figures()[name], REMEDY
    assert f"]({concepts.FIGURES.name}/{name})" in TEXT


def test_each_term_is_explained_once_and_in_this_order() -> None:
    bold = [term.strip("`").lower() for term in re.findall(r"\*\*(.+?)\*\*", TEXT)]
    assert bold == TERMS


def test_the_resource_and_the_function_are_those_of_the_numbers() -> None:
    code = {one.language: one.text for one in reversed(list(blocks("page", TEXT)))}
    spec = yaml.safe_load(code["yaml"])["spec"]
    assert spec["batching"]["globalBatchSize"] == concepts.BATCH
    assert (spec["partitions"], spec["numSplits"]) == (concepts.PARTITIONS, concepts.SPLITS)
    assert f"range({concepts.ROWS})" in code["python"]
    assert f"batch_size({concepts.BATCH})" in code["python"]


def test_the_trainers_of_the_example_read_each_row_once() -> None:
    for epoch in (0, 1):
        both = [concepts.steps(trainer, epoch=epoch) for trainer in (0, 1)]
        rows = [one.row for steps in both for step in steps for one in step]
        assert sorted(rows) == list(range(concepts.ROWS))
        alone = concepts.steps(0, 1, epoch)
        for number, step in enumerate(alone):
            shared = [one for steps in both for one in steps[number]]
            assert set(step) == set(shared)


def test_the_restored_trainer_reads_what_the_two_have_not_read() -> None:
    read = [
        one
        for trainer in (0, 1)
        for step in concepts.steps(trainer)[: concepts.STEPS_BEFORE]
        for one in step
    ]
    rest = [one for step in concepts.steps(0, 1, start=concepts.position()) for one in step]
    assert sorted(one.row for one in [*read, *rest]) == list(range(concepts.ROWS))


def test_the_split_that_is_replayed() -> None:
    first, second = deal(concepts.SEED, 0, concepts.SPLITS, concepts.PARTITIONS)[0]
    gone = concepts.position()[0] - len(concepts.split_rows(first))
    again, following = concepts.split_rows(second)[:gone], concepts.split_rows(second)[gone]
    assert f"Split {second} must now continue at row {following}," in TEXT
    assert f"computes rows {' and '.join(map(str, again))} again" in " ".join(TEXT.split())
    assert f"begins with split {second} while another still computes\nsplit {first}." in TEXT


def test_the_page_is_linked() -> None:
    assert "](docs/concepts.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](concepts.md)" in (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert navigation.index("docs/concepts.md") < navigation.index("- Guides:")
