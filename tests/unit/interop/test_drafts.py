"""Snapshots that are edited without a Spark job: what stays, what is renamed, and what an interrupted write leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import ConfigError, CorruptSnapshot, LocationError
from penstock.interop.spark_data.draft import Draft, draft_of_snapshot, rename_operator
from penstock.interop.spark_data.writing import write_snapshot
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.bootstrap import LocationBootstrap
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.retention import delete_snapshot, remove_orphans
from penstock.snapshots.store.store import LocalStore
from tests.support.snapshots.location_kit import Kept, contents, flip
from tests.support.snapshots.portable_kit import KEPT, LABEL, Scene, at, names, restored, rewritten
from tests.support.snapshots.snapshot_kit import COUNT, SOURCE

NAME = f"{COUNT}/counts"


def draft(location: Path, snapshot: str = "") -> Draft:
    return draft_of_snapshot(open_location_to_read(str(location)), snapshot)


def write(one: Draft, location: Path, frames: dict[str, None] | None = None) -> SnapshotMetadata:
    return write_snapshot(one, frames or {}, str(location), "", "")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_is_not_edited_stays_and_the_origin_is_not_touched(scene: Scene, tmp_path: Path) -> None:
    before = contents(scene.location)
    metadata = write(draft(scene.location, LABEL), tmp_path / "made")
    assert contents(scene.location) == before
    verification = verify_location(str(tmp_path / "made"))
    assert (verification.damage, verification.orphans, verification.unsettled) == ([], [], [])
    [line] = list_snapshots(open_location_to_read(str(tmp_path / "made")), 0).snapshots
    assert (line.id, line.label, line.kind, line.state_rows) == ("chk-5", LABEL, "requested", 792)
    assert metadata.query_id == "query-1"
    assert open_location_to_read(str(tmp_path / "made")).identity.origin == "query-1"
    for parallelism in (1, 2, 3):
        job = at(scene.graph, parallelism)
        assert restored(tmp_path / "made", job) == restored(scene.location, job)
    assert (tmp_path / "made" / KEPT).read_bytes() == (scene.location / KEPT).read_bytes()


def test_a_renamed_operator_takes_all_that_is_its_own_along(scene: Scene, tmp_path: Path) -> None:
    renamed = rename_operator(draft(scene.location), COUNT, "by-key")
    assert list(renamed.tables) == ["by-key/counts"]
    write(renamed, tmp_path / "made")
    job = at(scene.graph, 3)

    def called(value: Any) -> Any:
        return {tuple("by-key" if part == COUNT else part for part in key) if isinstance(key, tuple) else
                "by-key" if key == COUNT else key: one for key, one in value.items()}  # fmt: skip

    for found, expected in zip(restored(tmp_path / "made", job), restored(scene.location, job), strict=True):
        if isinstance(expected[0], dict):
            expected = (called(expected[0]), called(expected[1]), *expected[2:])
        assert found == expected
    with pytest.raises(ConfigError, match="source source-1 keeps files of its own"):
        rename_operator(draft(scene.location), SOURCE, "clicks")
    with pytest.raises(ConfigError, match="sink-1 is a sink"):
        rename_operator(draft(scene.location), "sink-1", "out")
    with pytest.raises(ConfigError, match="'a b' is no id"):
        rename_operator(draft(scene.location), COUNT, "a b")


def test_a_table_that_is_emptied_has_no_rows_at_any_parallelism(scene: Scene, tmp_path: Path) -> None:
    metadata = write(draft(scene.location), tmp_path / "made", {NAME: None})
    assert {entry.rows for slot in metadata.slots for one in slot.subtasks for entry in one.states} == {0}
    for parallelism in (1, 2, 3):
        found = restored(tmp_path / "made", at(scene.graph, parallelism))
        tables = [one[0] for one in found if isinstance(one[0], dict)]
        assert not any(rows for table in tables for rows in table.values())
    assert not list((tmp_path / "made" / "data").glob("1-[1-4]-*-state.arrows")), "the old rows were not brought"


def test_damage_is_found_and_nothing_stays(scene: Scene, tmp_path: Path) -> None:
    one = draft(scene.location)
    flip(sorted((scene.location / "data").glob("*-state.arrows"))[-1])
    with pytest.raises(CorruptSnapshot, match="chk-4 is damaged"):
        write(one, tmp_path / "made")
    assert names(tmp_path / "made") == []


def test_a_snapshot_that_goes_before_it_is_written_is_said_to_be_gone(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "at")
    kept.put(dict.fromkeys(range(300), 0))
    first = kept.snapshot()
    one = draft(kept.location)
    kept.put(dict.fromkeys(range(300), 1))
    kept.snapshot()
    store = LocalStore(kept.location)
    log = SnapshotLog(store, lambda: "t")
    log.refresh()
    delete_snapshot(store, log, Catalog(store), first)
    remove_orphans(store, log.view, Catalog(store), ())
    with pytest.raises(LocationError, match="chk-1 was deleted while it was read"):
        write(one, tmp_path / "made")
    assert names(tmp_path / "made") == []


def test_a_write_that_was_killed_leaves_no_location_and_is_completed_by_the_next(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    made = tmp_path / "made"
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotLog, "append", killed)
        patch.setattr(LocationBootstrap, "discard", lambda attempt: None)
        with pytest.raises(KeyboardInterrupt):
            write(draft(scene.location), made)
    left = set(names(made))
    assert any(name.startswith("snapshots/") for name in left)
    with pytest.raises(LocationError, match="is being made here, or was begun; complete it"):
        open_location_to_read(str(made))
    assert write(draft(scene.location), made).id == "chk-6", "one that was not listed keeps its number"
    assert [one.id for one in list_snapshots(open_location_to_read(str(made)), 0).snapshots] == ["chk-6"]
    assert not (left & set(names(made))) - {KEPT}
    verified = verify_location(str(made))
    assert (verified.damage, verified.orphans, verified.unsettled) == ([], [], [])
    with monkeypatch.context() as patch:
        patch.setattr(LocationBootstrap, "complete", killed)
        with pytest.raises(KeyboardInterrupt):
            write(draft(scene.location), tmp_path / "other")
    assert not any(name.startswith("data/") for name in names(tmp_path / "other"))


def test_locations_of_others_are_refused_untouched(scene: Scene, tmp_path: Path) -> None:
    before = contents(scene.location)
    with pytest.raises(LocationError, match="is in use"):
        write(draft(scene.location), scene.location)
    assert contents(scene.location) == before
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_text("x")
    with pytest.raises(LocationError, match="holds files that are not Penstock's"):
        write(draft(scene.location), tmp_path / "theirs")


def test_snapshots_that_nobody_may_start_from_are_refused(scene: Scene) -> None:
    drained = rewritten(scene.location, lambda m: msgspec.structs.replace(m, drained=True))
    with pytest.raises(LocationError, match="its event time has ended"):
        draft(scene.location, drained)

    def takes_away(metadata: SnapshotMetadata) -> SnapshotMetadata:
        assert metadata.plan is not None
        operators = metadata.plan.operators
        source = {**operators[SOURCE], "takes_away": True}
        plan = msgspec.structs.replace(metadata.plan, operators={**operators, SOURCE: source})
        return msgspec.structs.replace(metadata, plan=plan, drained=False)

    with pytest.raises(LocationError, match="cleanSource"):
        draft(scene.location, rewritten(scene.location, takes_away))
    one = draft(scene.location, LABEL)
    with pytest.raises(ConfigError, match=f"no state table 'x'; there are: {NAME}"):
        write(one, scene.location, {"x": None})
