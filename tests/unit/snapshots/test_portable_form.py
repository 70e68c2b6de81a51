"""A portable snapshot at the location itself, beside the native one: written, interrupted, deleted and collected."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import SnapshotFormat, snapshot_format
from penstock.coordinator.snapshot_tickets import SnapshotTickets
from penstock.errors import CheckpointFailed, ConfigError, LocationError
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands.deleting import plan_files_of_deletion
from penstock.snapshots.commands.ownership import plan_takeover
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable import jobs
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.layout import MANIFEST
from penstock.snapshots.portable.portable_form import future_with_portable_form, with_portable_form, write_portable_form
from penstock.snapshots.retention import find_orphans
from tests.support.snapshots.portable_kit import LABEL, Scene, at, restored


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, rounds=2)


def portable_files(scene: Scene) -> set[str]:
    return set(scene.store.list("portable"))


def test_it_is_a_portable_snapshot_and_no_query_minds_it(scene: Scene, tmp_path: Path) -> None:
    place = write_portable_form(str(scene.location), LABEL)
    assert place == str(scene.location / "portable/chk-2")
    convert_snapshot(Path(place), tmp_path / "back")
    assert restored(tmp_path / "back", at(scene.graph, 3)) == restored(scene.location, at(scene.graph, 3))
    view = SnapshotLog(scene.store).refresh()
    assert not [path for path in find_orphans(scene.store, view, Catalog(scene.store), ()) if "portable" in path]
    found = verify_location(str(scene.location))
    assert not found.damage
    assert not [file.path for file in (*found.orphans, *found.unsettled) if "portable" in file.path]
    before = portable_files(scene)
    assert write_portable_form(str(scene.location), "chk-2") == place, "it is there"
    assert portable_files(scene) == before


def test_a_try_that_was_interrupted_is_made_again(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs.StreamJob, "write", crash)
    with pytest.raises(LocationError, match=r"portable/chk-2 cannot be written: .*No space left"):
        write_portable_form(str(scene.location), LABEL)
    left = portable_files(scene)
    assert left
    assert not any(path.endswith(MANIFEST) for path in left)
    monkeypatch.undo()
    convert_snapshot(Path(write_portable_form(str(scene.location), LABEL)), tmp_path / "back")
    assert restored(tmp_path / "back", scene.graph) == restored(scene.location, scene.graph)


def test_it_goes_with_its_snapshot(scene: Scene) -> None:
    write_portable_form(str(scene.location), "chk-1")
    mine = portable_files(scene)
    assert mine <= set(plan_files_of_deletion(plan_takeover(scene.store), [1]).files)
    assert not mine & set(plan_files_of_deletion(plan_takeover(scene.store), [2]).files)
    stranger = "portable/chk-99/state/part.parquet"
    scene.store.create(stranger).close()
    found = find_orphans(scene.store, SnapshotLog(scene.store).refresh(), Catalog(scene.store), ())
    assert [path for path in found if path.startswith("portable/")] == [stranger]


def test_whoever_asks_for_both_is_told_when_both_are_there(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Catalog(scene.store).read(SnapshotLog(scene.store).refresh().lineage[-1])
    tickets = SnapshotTickets()
    native = tickets.promise()
    both = future_with_portable_form(str(scene.location), native)
    assert not both.done()
    native.set_result(metadata)
    assert both.result(60) is metadata
    assert scene.store.exists(f"portable/chk-2/{MANIFEST}")
    late = future_with_portable_form(str(scene.location), tickets.promise())
    tickets.query_ended("the query was stopped")
    with pytest.raises(CheckpointFailed, match="the query was stopped"):
        late.result(60)
    scene.store.delete(f"portable/chk-2/{MANIFEST}")
    for path in scene.store.list("data"):
        scene.store.delete(path)
    with pytest.raises(CheckpointFailed, match=r"chk-2 was taken, but its portable form was not written: .*is damaged"):
        with_portable_form(str(scene.location), metadata)


def test_formats_have_names() -> None:
    formats = [snapshot_format("format", text) for text in ("native", " Portable")]
    assert formats == [SnapshotFormat.NATIVE, SnapshotFormat.PORTABLE]
    with pytest.raises(ConfigError, match="format='parquet': choose native or portable"):
        snapshot_format("format", "parquet")
