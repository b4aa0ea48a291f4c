"""How open the files are that sidecar and trainer share: as their folder is.

In a pod the two may be different users, and their folder is a volume that everyone who mounts it
may write to. On one machine the folder is its owner's, and so are the files.
"""

from __future__ import annotations

import os
from pathlib import Path

_GROUP_WRITES, _OTHERS_WRITE = 0o020, 0o002


def mode(folder: Path, *, writable: bool = True) -> int:
    """Permissions of a file in `folder`: reading, and writing if `writable`, for whoever may put
    files there. Raises OSError where there is no such folder.
    """
    found = os.stat(folder).st_mode
    allowed = 0o600
    if found & _GROUP_WRITES:
        allowed |= 0o060
    if found & _OTHERS_WRITE:
        allowed |= 0o006
    return allowed if writable else allowed & 0o644
