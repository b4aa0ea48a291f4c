"""Measures CPU and memory of processes and their requests to the API server."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(pid: int, field: str = "VmRSS") -> int:
    """Return a process's memory in MiB: current (`VmRSS`) or maximum (`VmHWM`)."""
    text = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return int(fields[field].split()[0]) >> 10


class CpuUsage:
    """CPU seconds of processes since the creation of this object."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._before = {name: cpu_seconds(pid) for name, pid in pids.items()}

    def __str__(self) -> str:
        used = {name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}
        return "CPU s: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in used.items())


class AuditLog:
    """The API server's audit log of one user's requests, read incrementally."""

    def __init__(self, folder: Path, user: str) -> None:
        self._policy, self._log = folder / "audit.yaml", folder / "audit.log"
        rules = [{"level": "Metadata", "users": [user], "omitStages": ["RequestReceived"]}]
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        self._policy.write_text(json.dumps({**policy, "rules": [*rules, {"level": "None"}]}))
        self._read = self._log.stat().st_size if self._log.exists() else 0

    @property
    def flags(self) -> dict[str, object]:
        """Return the API server's flags for this log."""
        # Use one file: the default rotates it after 100 MB.
        size = {"audit-log-maxsize": 100_000}
        return {"audit-policy-file": self._policy, "audit-log-path": self._log, **size}

    def requests(self) -> Counter[str]:
        """Return the number of requests since the last call, by "verb resource"."""
        found: Counter[str] = Counter()
        with self._log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # incomplete line
                self._read += len(line)
                event = json.loads(line)
                target = event.get("objectRef", {})
                name = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
                found[f"{event['verb']} {name}"] += 1
        return found


def format_requests(requests: Counter[str]) -> str:
    """Format requests by verb and resource."""
    verbs: dict[str, Counter[str]] = {}
    for request, count in requests.items():
        verb, _, resource = request.partition(" ")
        verbs.setdefault(verb, Counter())[resource] += count
    return "; ".join(
        f"{verb} {counts.total()} ({', '.join(f'{name} {n}' for name, n in counts.most_common())})"
        for verb, counts in sorted(verbs.items())
    )
