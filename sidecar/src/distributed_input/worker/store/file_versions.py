"""The versions of files: what changes if their content does."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Sequence

import tensorflow as tf

from distributed_input.rows.stored_split import Version

MOST_FILES = 5000
"""A split that reads more is not stored: they are opened whenever the split is."""
MIN_AGE_SECONDS = 2.0
"""A younger file may change again without another time of modification."""
_SCHEME = re.compile("[a-zA-Z][0-9a-zA-Z.]*://")
_LOCAL = re.compile("file://[^/]*")
_COMPUTED = ("/proc/", "/sys/")  # their files change without other times
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def versions(names: Sequence[str]) -> list[Version] | None:
    """Return the versions of files, in the order of their names; None if one is not known.

    Files are opened: a network file system then shows its latest version.
    """
    if len(names) > MOST_FILES:
        return None
    found = list(map(_version, names))
    return [one for one in found if one is not None] if None not in found else None


def are_old(found: Iterable[Version]) -> bool:
    """Return whether all versions are older than the resolution of the times of files."""
    latest = int((time.time() - MIN_AGE_SECONDS) * 1e9)
    return all(at <= latest for one in found for at in one[2:4] if isinstance(at, int))


def _version(name: str) -> Version | None:
    if local := _LOCAL.match(name):
        return _local(name, name[local.end() :] or "/")
    return _remote(name) if _SCHEME.match(name) else _local(name, name)


def _local(name: str, path: str) -> Version | None:
    try:
        # TensorFlow cleans paths in the same way.
        path = path and os.path.normpath(path)
        file = os.open(path, _FLAGS)
    except FileNotFoundError:
        return [name]
    except (OSError, ValueError):
        return None  # TensorFlow may find a file, for example by the part before a NUL
    try:
        found = os.fstat(file)
    finally:
        os.close(file)
    if not stat.S_ISREG(found.st_mode) or os.path.realpath(path).startswith(_COMPUTED):
        return None
    # A link, or a folder of its path, may have another target. Numbers of devices without a disk,
    # such as network file systems, differ between pods.
    device = found.st_dev if os.major(found.st_dev) else 0
    times = found.st_mtime_ns, found.st_ctime_ns
    return [name, found.st_size, *times, device, found.st_ino]


def _remote(name: str) -> Version | None:
    try:
        found = tf.io.gfile.stat(name)
    except tf.errors.NotFoundError:
        return [name]
    except (tf.errors.OpError, ValueError):
        return None
    is_known = found.mtime_nsec > 0 and not found.is_directory
    return [name, found.length, found.mtime_nsec] if is_known else None
