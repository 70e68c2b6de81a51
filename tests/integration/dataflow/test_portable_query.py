"""A query that goes on from a portable snapshot of itself, which has rows in flight: its rows are exact."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from penstock.snapshots.fork import Origin
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import CountSpec, Numbers, assert_exact, tiny_graph

TOTAL = 60_000


def committed_up_to(epoch: int, folder: Path) -> None:
    """Forget what was committed later: the other query produces it again."""
    for path in (folder / "committed").glob("*.json"):
        if int(path.stem) > epoch:
            path.unlink()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("parallelism", "converted"), [(2, True), (3, True), (2, False), (3, False), (1, False)])
def test_a_query_goes_on_from_a_portable_snapshot_with_exact_rows(
    tmp_path: Path, launcher: ProcessLauncher, parallelism: int, converted: bool
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("200")  # microseconds per row: most of the input waits in queues
    job = tiny_graph(tmp_path / "out", 2, Numbers(TOTAL), CountSpec(str(slow)))
    query = run(job, tmp_path / "native", launcher)
    query.until(lambda v: v.committed_epoch >= 2, what="a first commit")
    taken = query.execution.request_snapshot(kept=True)
    query.until(lambda v: v.committed_epoch >= taken.checkpoint, what="its commit")
    manifest = export_snapshot(str(tmp_path / "native"), taken.id, tmp_path / "portable")
    query.execution.stop()
    assert sum(stream.rows for stream in manifest.streams) > 1000
    assert sum(part.rows for table in manifest.tables for part in table.parts) == 17
    shutil.rmtree(tmp_path / "native")
    committed_up_to(taken.checkpoint, tmp_path / "out")

    if converted:
        convert_snapshot(tmp_path / "portable", tmp_path / "back")
        shutil.rmtree(tmp_path / "portable")
    origin = None if converted else Origin(str(tmp_path / "portable"))
    slow.write_text("0")
    job = tiny_graph(tmp_path / "out", parallelism, Numbers(TOTAL))
    again = run(job, tmp_path / "back", launcher, origin=origin, allow_shared_sink=True)
    shutil.rmtree(tmp_path / "portable", ignore_errors=True)
    again.execution.process_all_available(60)
    again.execution.stop()
    assert_exact(tmp_path / "out", TOTAL)
    identity = json.loads((tmp_path / "back/query.json").read_text())["body"]
    assert identity["query_id"] == again.execution.query_id != identity["origin"]
