"""Makes the golden snapshots of the format as it is now: ``python -m tests.golden.make``, once per format version.

    tests/golden/<version>/memory/       a checkpoint location, state.backend=memory, parallelism 2
    tests/golden/<version>/rocksdb/      likewise, state.backend=rocksdb
    tests/golden/<version>/portable/     the first one's snapshot, exported
    tests/golden/<version>/output-*/     what the sinks had written by then, staged files included
    tests/golden/<version>/*.json        what each holds

**A folder that is there is never touched again**: it is what an earlier release wrote. A change of FORMAT_VERSION adds
one. Threads race, so no two runs give the same snapshot; what each holds is written down beside it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from penstock.config import Backend
from penstock.connectors.files.sink_committer import FileSinkCommitter
from penstock.errors import CommitFailed
from penstock.model.manifest import FORMAT_VERSION
from penstock.snapshots.commands.snapshot_sizes import state_entries
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.snapshots.writing.state_index import BASE, DELTA
from penstock.worker import checkpoint_uploader as uploads
from tests.support.dataflow.running import run
from tests.support.dataflow.thread_launcher import ThreadLauncher
from tests.support.golden.golden_content import content, newest, watermarks
from tests.support.golden.golden_query import golden_graph, write_input
from tests.support.places import GOLDEN

INPUT = Path(tempfile.gettempdir()) / "penstock-golden"
"""The same for every run: splits have absolute paths of the input."""


def main() -> int:
    target = GOLDEN / str(FORMAT_VERSION)
    if target.exists():
        print(f"{target} is there, and what is there is never made again", file=sys.stderr)
        return 1
    uploads.SlotWriter = partial(SlotWriter, whole_bytes=0)  # type: ignore[misc, assignment]  # deltas of small tables
    for backend in Backend:
        while not take(target, backend):
            print("something is missing in it: once more")
    export_snapshot(str(target / "memory"), "golden", target / "portable")
    return 0


def take(target: Path, backend: Backend) -> bool:
    """A snapshot with rows in flight whose own epoch was not committed when the query died; whether it has all."""
    shutil.rmtree(INPUT, ignore_errors=True)
    write_input(INPUT / "input")
    (INPUT / "slow").write_text("4000")
    (INPUT / "slower").write_text("5500")
    location = INPUT / "location"
    job = golden_graph(INPUT, 2)
    options = {
        "restart_attempts": 0,
        "checkpoint_interval_ms": 400,
        "checkpoint_max_concurrent": 1,
        "snapshots_retained": 1,
        "state_backend": backend,
    }
    query = run(job, location, ThreadLauncher(), **options)  # type: ignore[arg-type]
    query.until(lambda view: view.committed_epoch >= 4 and any((INPUT / "output").glob("part-*")), what="some output")
    commit, FileSinkCommitter.commit = FileSinkCommitter.commit, refuse  # type: ignore[method-assign]
    try:
        query.execution.request_snapshot("golden", note="what later releases have to read")
        query.execution.stop()
    except Exception as error:  # noqa: BLE001  # the query fails when it commits: that is what was wanted
        print(f"{backend.value}: {error}")
    finally:
        FileSinkCommitter.commit = commit  # type: ignore[method-assign]
    found = content(location, 2)
    parts = {part: len(found[part]) for part in ("in flight", "splits", "not handed out", "pending")}
    print(backend.value, found["snapshot"], parts, "chained" if chained(location) else "")
    if not all(parts.values()) or not chained(location):
        return False
    name = backend.value
    shutil.copytree(location, target / name)
    shutil.copytree(INPUT / "output", target / f"output-{name}")
    found |= {"watermarks": watermarks(target / name), "input": str(INPUT / "input")}
    (target / f"{name}.json").write_text(json.dumps(found, sort_keys=True, separators=(",", ":")) + "\n")
    return True


def chained(location: Path) -> bool:
    """Return True if the state has deltas, and bases of several checkpoints."""
    entries = list(state_entries(newest(location)))
    return {entry.kind for entry in entries} == {BASE, DELTA} and len({e.section.path for e in entries}) > 4


def refuse(*_: object) -> None:
    raise CommitFailed("the golden snapshot's epoch stays pending")


if __name__ == "__main__":
    raise SystemExit(main())
