"""What processes cost and what one of them asks of the API server: for measurements."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(pid: int, field: str = "VmRSS") -> int:
    """MiB of memory: now, or at most so far (`VmHWM`)."""
    text = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return int(fields[field].split()[0]) >> 10


class Costs:
    """CPU seconds of some processes since this was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._before = {name: cpu_seconds(pid) for name, pid in pids.items()}

    def __str__(self) -> str:
        used = {name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}
        return "CPU s: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in used.items())


class Audit:
    """The API server's record of one user's requests, read on from where it was read last."""

    def __init__(self, folder: Path, user: str) -> None:
        self._policy, self._log = folder / "audit.yaml", folder / "audit.log"
        rules = [{"level": "Metadata", "users": [user], "omitStages": ["RequestReceived"]}]
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        self._policy.write_text(json.dumps({**policy, "rules": [*rules, {"level": "None"}]}))
        self._read = self._log.stat().st_size if self._log.exists() else 0

    @property
    def flags(self) -> dict[str, object]:
        """The API server's."""
        # In one file: the API server would begin another after 100 MB.
        size = {"audit-log-maxsize": 100_000}
        return {"audit-policy-file": self._policy, "audit-log-path": self._log, **size}

    def requests(self) -> Counter[str]:
        """Requests since the last call, by "verb resource"."""
        found: Counter[str] = Counter()
        with self._log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._read += len(line)
                event = json.loads(line)
                what = event.get("objectRef", {})
                name = "/".join(filter(None, (what.get("resource"), what.get("subresource"))))
                found[f"{event['verb']} {name}"] += 1
        return found


def told(requests: Counter[str]) -> str:
    """Requests by verb, and by resource within each."""
    verbs: dict[str, Counter[str]] = {}
    for what, count in requests.items():
        verb, _, resource = what.partition(" ")
        verbs.setdefault(verb, Counter())[resource] += count
    return "; ".join(
        f"{verb} {of.total()} ({', '.join(f'{name} {n}' for name, n in of.most_common())})"
        for verb, of in sorted(verbs.items())
    )
