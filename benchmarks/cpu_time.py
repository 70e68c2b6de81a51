"""CPU seconds of this process and everything it has started: Spark's JVM, and the slots that that starts."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from pathlib import Path


def cpu_seconds() -> float:
    """Used so far, by those that have ended and were waited for, too. To be subtracted from a later one."""
    parents: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(fields[1])].append(int(entry.name))
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))  # utime, stime, and those of its waited-for children
    total, waiting = 0, [os.getpid()]
    for process in waiting:
        total += ticks.get(process, 0)
        waiting += parents[process]
    return total / os.sysconf("SC_CLK_TCK")
