"""Files that snapshots share, with real chains of state and in-flight rows over several checkpoints."""

from __future__ import annotations

from pathlib import Path

from penstock.model.ids import snapshot_id
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.sharing import find_shared_files
from tests.support.snapshots.location_kit import Kept


def test_every_file_has_all_that_need_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "location")
    for number in range(3):
        kept.put(dict.fromkeys(range(number, 400, number + 1), number))
        kept.snapshot(in_flight=3 if number == 1 else 0)
    opened = open_location_to_read(str(tmp_path / "location"))
    needed: dict[str, list[str]] = {}
    for record in opened.view.snapshots:
        for path in opened.catalog.referenced_files(record):
            needed.setdefault(path, []).append(snapshot_id(record.checkpoint))
    assert max(map(len, needed.values())) == 3, "the first base is in all of them"
    told = find_shared_files(opened)
    data = {file.path: file for file in told.files if file.kind != "metadata"}
    assert {path: file.snapshots for path, file in data.items()} == needed
    assert {path.endswith("-state.arrows") for path, file in data.items() if file.kind == "state"} == {True}
    assert [path for path, file in data.items() if file.kind == "inflight"] == ["data/1-2-0.arrows"]
