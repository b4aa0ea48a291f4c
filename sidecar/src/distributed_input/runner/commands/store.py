"""`distributed-input store`: the splits that workers have stored in a folder."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

from distributed_input.api.errors import ConfigError
from distributed_input.rows.store_folder import SUFFIX, StoreFolder, delete
from distributed_input.rows.stored_split import StoredSplit, StoreError
from distributed_input.runner.command_line import argument, command
from distributed_input.runner.folders import store_folder

_EXAMPLES = """\
examples:
  distributed-input store ls                            # those of `distributed-input run`
  distributed-input store verify /mnt/stored-splits
  distributed-input store rm --dataset digits:dataset_fn

exit status: 0, 1 if a split is damaged, or 2 if there is no such folder
"""


@command(_EXAMPLES)
@argument(
    "action",
    type=click.Choice(["ls", "verify", "rm"]),
    help="ls: list the datasets. verify: read all blocks, and name damaged splits, which workers "
    "compute again. rm: remove splits. Workers that read them continue.",
)
@argument(
    "folder",
    required=False,
    type=click.Path(path_type=Path),
    help="Folder of the store. Default: that of `distributed-input run`.",
)
@click.option("--dataset", metavar="NAME", help="Only the splits of this dataset. Default: all.")
def store(action: str, folder: Path | None, dataset: str | None) -> int:
    """List, verify or remove stored splits."""
    folder = folder or store_folder(os.environ)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is not a folder")
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
    damaged = 0
    for path, found, error in _splits(folder, verify=action == "verify"):
        name = found.about.dataset if found is not None else ""
        if dataset is not None and name != dataset:
            continue
        if error:
            damaged += 1
            print(f"{path.name}: {error}")
        if action == "rm":
            delete(path)
        if found is not None:
            values = 1, found.about.rows, found.size, found.about.seconds
            totals[name] = [sum(pair) for pair in zip(totals[name], values, strict=True)]
    done = "removed " if action == "rm" else ""
    for name, (splits, rows, size, seconds) in sorted(totals.items()):
        print(
            f"{name}: {done}{splits:,.0f} splits, {rows:,.0f} rows, {size / 1e6:,.1f} MB, "
            f"{seconds:,.1f} s of CPU"
        )
    if not totals:
        print(f"no splits in {folder}")
    return 1 if damaged and action != "rm" else 0


def _splits(folder: Path, verify: bool) -> Iterator[tuple[Path, StoredSplit | None, str]]:
    """Yield the stored splits, and what is wrong with each; None: it cannot be opened."""
    for path in sorted(entry.path for entry in StoreFolder(folder, 0).entries()):
        if path.suffix != SUFFIX:
            continue
        try:
            with closing(StoredSplit(path)) as found:
                error = ""
                try:
                    if verify:
                        found.verify()
                except StoreError as raised:
                    error = str(raised)
                yield path, found, error
        except (OSError, StoreError) as raised:
            yield path, None, str(raised)
