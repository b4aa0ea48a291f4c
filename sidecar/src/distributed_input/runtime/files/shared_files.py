"""Permissions of the files that sidecar and trainer share: they follow the folder's permissions.

In a pod, the two may run as different users, and the folder is a volume that both may write to. On
one machine, the folder and its files belong to one user.
"""

from __future__ import annotations

import os
from pathlib import Path

_GROUP_WRITES, _OTHERS_WRITE = 0o020, 0o002


def mode(folder: Path) -> int:
    """Return the permissions of a new file in `folder`.

    Everyone who may write to the folder may read the file and write to it.

    Raises:
        OSError: the folder does not exist.
    """
    found = os.stat(folder).st_mode
    allowed = 0o600
    if found & _GROUP_WRITES:
        allowed |= 0o060
    if found & _OTHERS_WRITE:
        allowed |= 0o006
    return allowed
