"""Run as a program: reads hostile things under a limit of address space, and says how each ended and what it took.

``python bounded_reader.py LOCATION_OR_DIRECTORY...``: one line of JSON for each.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb  # noqa: F401  # what the tests' kits import anyway takes address space before the limit counts

from penstock.errors import PenstockError
from penstock.snapshots.portable.convert import convert_snapshot
from tests.support.snapshots.hostile import read_everything
from tests.support.snapshots.snapshot_kit import graph

MORE_BYTES = 768 << 20


def virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ended(work: Callable[[], list[PenstockError]]) -> str:
    try:
        return " | ".join(f"{type(error).__name__}: {error}" for error in work()) or "nothing was refused"
    except PenstockError as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    for warm in sys.argv[1:2]:  # what is loaded on first use
        read_everything(Path(warm), graph(2))
    limit = virtual_bytes() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in sys.argv[2:]:
        before, path = peak_bytes(), Path(name)
        with tempfile.TemporaryDirectory() as folder:

            def convert(path: Path = path, folder: str = folder) -> list[PenstockError]:
                convert_snapshot(path, Path(folder, "back"))
                return []

            def read(path: Path = path) -> list[PenstockError]:
                return read_everything(path, graph(2))

            text = ended(convert if (path / "manifest.json").exists() else read)
        print(json.dumps({"name": name, "ended": text, "peak": peak_bytes() - before}), flush=True)


if __name__ == "__main__":
    main()
