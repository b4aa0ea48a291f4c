"""Loading of DistributedInputs from YAML files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.parse import Check, no_check, only, parse_all
from distributed_input.api.resource.problems import Problem, ResourceError


def load(path: str | os.PathLike[str]) -> DistributedInput:
    """Return the only DistributedInput in a YAML file. Documents of other kinds are ignored.

    A relative `source.path` is joined to the file's folder, so it is absolute in the result.

    Raises:
        ResourceError: the file cannot be read, or does not have exactly one valid
            DistributedInput.
    """
    return only(load_all(path), os.fspath(path))


def load_all(path: str | os.PathLike[str], check: Check = no_check) -> list[DistributedInput]:
    """Return all DistributedInputs in a YAML file, at least one. See `load`.

    `check` returns further problems of a valid resource.
    """
    source = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{source}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ResourceError(f"{source}: is not UTF-8 text: save it as UTF-8") from error
    folder = os.path.abspath(Path(path).parent)
    return parse_all(text, source, folder, lambda one: [*_missing_folders(one), *check(one)])


def _missing_folders(resource: DistributedInput) -> Iterator[Problem]:
    path = resource.spec.dataset.path
    if path is None or os.path.isdir(path):
        return
    text = f"folder {path} does not exist: set the folder of the code, relative to this file"
    if os.path.exists(path):
        text = f"{path} is a file: set the folder that contains it, relative to this file"
    yield Problem(("spec", "dataset", "entryPoint", "source", "path"), text)
