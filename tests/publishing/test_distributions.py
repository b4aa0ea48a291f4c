"""The contents and metadata of the wheels, the sdists and the chart."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest

from testing.charts.rendering import helm
from testing.publishing import artifacts
from testing.publishing.artifacts import ROOT

LIBRARY = "distributed_input/graph/_native_ops.so"
ARM64 = "_aarch64.whl"
ELF_MACHINE, ELF_AARCH64 = slice(18, 20), 183
SOURCES = {"distributed_input": ROOT / "sidecar", "distributed_input_operator": ROOT / "operator"}


def wheel(dist: Path, name: str) -> zipfile.ZipFile:
    (found,) = (one for one in dist.glob(f"{name}-*.whl") if not one.name.endswith(ARM64))
    return zipfile.ZipFile(found)


def metadata(dist: Path, name: str) -> Message:
    archive = wheel(dist, name)
    (path,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
    return HeaderParser().parsestr(archive.read(path).decode())


def tracked(folder: Path, *within: str) -> set[str]:
    """Return the files of folders of a package in git, relative to the package."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", *within)
    listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(listed.stdout.splitlines())


def test_an_index_accepts_the_metadata_and_renders_the_readmes(dist: Path) -> None:
    archives = artifacts.distributions(dist)
    assert len([one for one in archives if not one.name.endswith(ARM64)]) == 4
    check = (sys.executable, "-m", "twine", "check", "--strict", *map(str, archives))
    checked = subprocess.run(check, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", SOURCES)
def test_a_wheel_has_the_packages_files_and_nothing_else(dist: Path, name: str) -> None:
    """Data files too: type information, `.proto` files and stubs."""
    found = {one for one in wheel(dist, name).namelist() if not one.endswith("/")} - {LIBRARY}
    code = {one for one in found if ".dist-info/" not in one}
    assert code == {one.removeprefix("src/") for one in tracked(SOURCES[name], "src")}
    assert f"{name}/py.typed" in code
    (folder,) = {one.partition("/")[0] for one in found - code}
    assert f"{folder}/licenses/LICENSE" in found


@pytest.mark.parametrize("name", SOURCES)
def test_an_sdist_has_the_sources_and_builds_the_same_wheel(
    dist: Path, name: str, tmp_path: Path
) -> None:
    (sdist,) = dist.glob(f"{name}-*.tar.gz")
    with tarfile.open(sdist) as archive:
        root = sdist.name.removesuffix(".tar.gz")
        # The backend adds a copy of pyproject.toml without comments.
        own = {"PKG-INFO", "LICENSE", "README.md", "pyproject.toml", "pyproject.toml.orig"}
        found = {one.name.removeprefix(f"{root}/") for one in archive if one.isfile()}
        assert found - own == tracked(SOURCES[name], "src", "native")
        archive.extractall(tmp_path, filter="data")
    build = (artifacts.uv(), "build", "--quiet", "--wheel", "--out-dir", tmp_path / "out")
    subprocess.run((*build, tmp_path / root), check=True)
    (again,) = (tmp_path / "out").glob("*.whl")
    (first,) = dist.glob(again.name)
    assert digest(again) == digest(first)


def test_a_wheel_with_the_native_ops_is_for_one_platform(dist: Path) -> None:
    found = wheel(dist, "distributed_input")
    assert found.filename
    has_library = LIBRARY in found.namelist()
    assert has_library == ("none-any" not in found.filename)
    assert has_library or not shutil.which("c++")


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which(artifacts.ARM64_COMPILER),
    reason="no cross-compiler",
)
def test_a_wheel_for_arm64_has_its_own_library_and_the_same_code(dist: Path) -> None:
    (found,) = dist.glob(f"distributed_input-*{ARM64}")
    files, own = zipfile.ZipFile(found), wheel(dist, "distributed_input")
    library = files.read(LIBRARY)
    assert int.from_bytes(library[ELF_MACHINE], "little") == ELF_AARCH64
    assert b"GLIBC_2.17" in library
    assert not set(re.findall(rb"GLIBC_2\.\d+", library)) - {b"GLIBC_2.17"}
    same = {one for one in own.namelist() if ".dist-info/" not in one} - {LIBRARY}
    assert {one: files.read(one) for one in same} == {one: own.read(one) for one in same}


def test_without_a_compiler_no_library_is_left(tmp_path: Path) -> None:
    older = tmp_path / "older.so"
    older.write_bytes(b"of another machine")
    code = f"import pathlib, backend; print(backend.build_library(pathlib.Path({str(older)!r})))"
    built = subprocess.run(
        [sys.executable, "-c", code],
        cwd=SOURCES["distributed_input"] / "native",
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert built.stdout == "False\n"
    assert "no C++ compiler" in built.stderr
    assert not older.exists()


@pytest.mark.parametrize("name", SOURCES)
def test_the_metadata_is_complete(dist: Path, name: str) -> None:
    fields = metadata(dist, name)
    for field in ("Summary", "Keywords", "License-Expression", "Requires-Python", "Author"):
        assert fields[field], field
    assert fields["Requires-Python"] == ">=3.10"
    pythons = [one for one in fields.get_all("Classifier", []) if ":: 3." in one]
    assert [one.rpartition(" ")[2] for one in pythons] == ["3.10", "3.11", "3.12", "3.13"]


@pytest.mark.parametrize("name", SOURCES)
def test_dependencies_have_a_lowest_version_and_are_not_pinned(dist: Path, name: str) -> None:
    for required in metadata(dist, name).get_all("Requires-Dist", []):
        requirement = required.partition(";")[0]
        if requirement.strip().startswith("distributed-input["):
            continue  # an extra of the same distribution
        assert "==" not in requirement
        assert ">=" in requirement or "~=" in requirement, requirement


def test_the_archive_of_the_chart_is_a_valid_chart(dist: Path) -> None:
    (archive,) = dist.glob("*.tgz")
    checked = helm("lint", "--strict", archive)
    assert checked.returncode == 0, checked.stdout
    # The definitions are links in the checkout.
    rendered = helm("template", "some", archive)
    assert rendered.stdout.count("kind: CustomResourceDefinition") == 2, rendered.stderr


def test_a_chart_for_a_registry_has_its_images(tmp_path: Path) -> None:
    archive = artifacts.build_chart(tmp_path, registry="registry.example/team")
    rendered = helm("template", "some", archive)
    for image in artifacts.IMAGES:
        assert f"registry.example/team/{image}:" in rendered.stdout, rendered.stderr


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
