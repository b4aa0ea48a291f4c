"""The documentation site: which files are its pages, and that a broken link is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.site.stage import ROOT, linked, pages, stage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a small repository with two pages and a file that one of them links to."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Top\n\n[guide](docs/guide.md#part)\n")
    (tmp_path / "docs" / "guide.md").write_text(
        "# Guide\n\n## Part\n\n[code](../code.py)\n\n```\n[no link](../other.py)\n```\n"
    )
    (tmp_path / "code.py").touch()
    (tmp_path / "other.py").touch()
    return tmp_path


def build(root: Path) -> str:
    """Build the site of `root` with this repository's configuration; return the warnings."""
    stage(root / "build" / "site-source", root)
    text = (ROOT / "mkdocs.yml").read_text().partition("nav:\n")
    assert text[1]
    (root / "mkdocs.yml").write_text(f"{text[0]}nav: [README.md, docs/guide.md]\n")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
    )
    _, found, warnings = done.stderr.partition("WARNING")
    assert (done.returncode == 0) == (not found)
    return warnings


def test_pages_and_what_they_link_to(root: Path) -> None:
    assert pages(root) == [Path("README.md"), Path("docs/guide.md")]
    assert linked(Path("docs/guide.md"), root) == [Path("code.py")]


def test_a_site_without_mistakes(root: Path) -> None:
    assert build(root) == ""
    assert (root / "build" / "site" / "index.html").exists()
    assert (root / "build" / "site" / "code.py").exists()


@pytest.mark.parametrize("link", ["docs/missing.md", "docs/guide.md#missing", "missing.py"])
def test_a_broken_link_is_a_warning(root: Path, link: str) -> None:
    (root / "README.md").write_text(f"# Top\n\n[broken]({link})\n")
    assert "missing" in build(root)


def test_a_page_that_the_navigation_lacks_is_a_warning(root: Path) -> None:
    (root / "docs" / "other.md").write_text("# Other\n")
    assert "other.md" in build(root)
