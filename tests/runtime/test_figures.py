"""What the driver shows, when checkpoints complete in any order."""

from __future__ import annotations

from pathlib import Path

from tiny import Numbers, tiny_graph

from penstock.runtime.figures import Figures
from penstock.runtime.view import CheckpointState
from penstock.snapshot.model import SlotManifest, SnapshotMetadata, SubtaskManifest


def snapshot(checkpoint: int, rows: int, requested: bool = False) -> SnapshotMetadata:
    """The source had read ``rows`` rows by then."""
    slots = [SlotManifest(0, [SubtaskManifest(0, 0, rows_in=rows)])]
    name = f"chk-{checkpoint}"
    return SnapshotMetadata(1, name, "q", 1, checkpoint, "auto", requested, "", 0, 1, 128, slots, [])


def test_a_snapshot_that_completes_after_a_newer_one_takes_no_rows_back(tmp_path: Path) -> None:
    figures = Figures(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    for checkpoint in (1, 2, 3):
        figures.triggered(checkpoint, "auto")
    figures.complete(snapshot(2, 500))
    progress = figures.committed(2)
    assert progress is not None
    assert progress.rows == 500
    figures.complete(snapshot(1, 300, requested=True))
    figures.complete(snapshot(3, 900))
    progress = figures.committed(3)
    assert progress is not None
    assert progress.rows == 400
    assert [c.state for c in figures.view().checkpoints] == [CheckpointState.COMPLETE] * 3
    assert [c.requested for c in figures.view().checkpoints] == [True, False, False]
