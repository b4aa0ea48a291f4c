"""The generated pages are complete: each command, field, metric, value and exported name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import distributed_input
from distributed_input import cli
from testing.site import reference
from testing.site.reference import api, values
from testing.site.stage import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with all pages."""
    target = tmp_path_factory.mktemp("site")
    reference.write(target)
    return target / reference.FOLDER


def text(folder: Path, name: str) -> str:
    """Return a page, with paths of fields as other code."""
    page = (folder / name).read_text().replace("<wbr>", "")
    return page.replace("<code>", "`").replace("</code>", "`")


def test_the_navigation_has_each_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for name in reference.PAGES:
        assert f": {reference.FOLDER}/{name}\n" in navigation
    assert f"[{reference.FOLDER}/{reference.STYLE}]" in navigation


def test_commands_and_flags(folder: Path) -> None:
    page = text(folder, "cli.md")
    for command in (*cli.COMMANDS, *cli.PROCESSES, *cli.PLUGINS):
        assert f"\n## {command}\n" in page
    assert "| `--workers N\\|local` | Number of workers of each input" in page
    assert "`-o, --output [text\\|json]`" in page
    assert "| `-f FILE`, `--file FILE` |" in page


def test_fields_of_the_resources(folder: Path) -> None:
    page = text(folder, "resource.md")
    assert "| `spec.workers.replicas` | integer from 0 to 1000 | Number of worker pods." in page
    assert '| `spec.networkPolicy` | `"Restricted"` or `"Open"` |' in page
    assert "| `spec.budgets[].limits.workers` |" in page
    assert "| `status.ready" in page or "| `status.conditions" in page
    assert "partitions does not divide batching.globalBatchSize" in page


def test_metrics(folder: Path) -> None:
    page = text(folder, "metrics.md")
    assert "| `distributed_input_worker_rows_total` | counter |" in page
    assert "| `distributed_input_workers_recommended` | gauge | `namespace`, `input` |" in page
    assert "| `distributed_input_operator_reconciles_total` | counter | `result` |" in page


def test_each_value_of_the_chart_has_a_default_and_a_description() -> None:
    found = list(values.values(values.FILE.read_text()))
    assert [one.path for one in found] == values.documented_paths()
    defaults = {one.path: one.default for one in found}
    assert defaults["rollout.maxInputs"] == "10%"
    assert [one.path for one in found if one.default and not one.description] == []


def test_the_defaults_are_those_of_the_file() -> None:
    document = yaml.safe_load(values.FILE.read_text())
    for one in values.values(values.FILE.read_text()):
        if one.default:
            value = document
            for name in one.path.split("."):
                value = value[name]
            assert yaml.safe_load(one.default) == value


def test_each_exported_name(folder: Path) -> None:
    page = text(folder, "api.md")
    for name in distributed_input.__all__:
        assert f"\n## {name}\n" in page
    assert "connect(name: str='', *, job: str | None=None" in page
    assert "### BackupAndRestore" in page
    assert "**position**" in page


def test_sections_of_a_docstring_are_lists() -> None:
    given = "Do it.\n\nArgs:\n    name: the name; it\n        is long.\n\nRaises:\n    Error: bad."
    assert api.docstring(given) == (
        "Do it.\n\n\n*Args:*\n\n- `name`: the name; it\n  is long.\n\n\n*Raises:*\n\n"
        "- `Error`: bad.\n\n"
    )


def test_versions(folder: Path) -> None:
    page = text(folder, "versions.md")
    assert "| Python | 3.10, 3.11, 3.12, 3.13 |" in page
    assert "| tensorflow | 2.16 or later | 2." in page
    assert "| 3.12 | ==2.16.* |" in page
    assert "| 3.13 | newest |" in page
    assert "linux/amd64 and linux/arm64" in page
