"""Arguments of ``job/LatencyUnderLoad.java``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class LoadSettings:
    """One run of the job.

    Attributes:
        steps: as ``str`` of a ``load_source.Schedule`` gives them; empty: rows come as fast as they are taken.
        folder: for what ``benchmarks/lib/latency_sink.py`` reads.
        buffer_timeout_ms: how long a row may wait for its network buffer to fill.
    """

    main_class: ClassVar[str] = "penstock.peer.LatencyUnderLoad"

    started_us: int
    steps: str
    folder: Path
    interval_ms: int = 1000
    unaligned: bool = False
    buffer_timeout_ms: int = 100
    parallelism: int = 2
    keys: int = 10_000

    def arguments(self) -> list[str]:
        given = {
            "startedUs": self.started_us,
            "folder": self.folder,
            "intervalMs": self.interval_ms,
            "unaligned": str(self.unaligned).lower(),
            "bufferTimeoutMs": self.buffer_timeout_ms,
            "keys": self.keys,
        }
        if self.steps:
            given["steps"] = self.steps
        return [text for name, value in given.items() for text in (f"--{name}", str(value))]
