"""From native to portable and back: nothing is lost, nothing half-written stays, and the new query is a fork."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import CorruptSnapshot, LocationError, NotSupported
from penstock.model.manifest import PlanManifest, SnapshotMetadata, StateEntry
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.fork import Origin, start_fork
from penstock.snapshots.format.table_entries import split_key_groups
from penstock.snapshots.location import claim_identity, identity_of, open_location, read_identity
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable import export
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.portable.layout import read_manifest, safe_file_name
from penstock.snapshots.portable.manifest_checks import checked_manifest
from penstock.snapshots.store.store import LocalStore
from penstock.state.hashing import groups_of
from tests.support.places import GOLDEN
from tests.support.snapshots.portable_kit import KEPT, LABEL, Scene, at, names, one_table, restored, rewritten, taken_at
from tests.support.snapshots.snapshot_kit import COUNT, Driver, NoSource, Target, graph

NARROWED = GOLDEN / "narrowed"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, Path, Path]:
    """A scene, its snapshot as a portable one, and what that became; to be read only."""
    directory = tmp_path_factory.mktemp("made")
    scene = Scene(directory)
    export_snapshot(str(scene.location), LABEL, directory / "portable", range_bytes=4000)
    convert_snapshot(directory / "portable", directory / "back")
    return scene, directory / "portable", directory / "back"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, rounds=2)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_what_is_restored_from_the_way_back_is_what_was_there(made: tuple[Scene, Path, Path], parallelism: int) -> None:
    scene, _, back = made
    job = at(scene.graph, parallelism)
    before = restored(scene.location, job)
    assert restored(back, job) == before
    metadata = Catalog(scene.store).read(SnapshotLog(scene.store).refresh().lineage[-1])
    states = [state for slot in metadata.slots for subtask in slot.subtasks for state in subtask.states]
    assert {state.kind for state in states} == {"base", "delta"}, "there was something to merge"
    flying = [rows for _, entries in before[2::2] for _, _, rows, _ in entries]
    assert sum(map(len, flying)) == 29


@pytest.mark.parametrize("parallelism", [1, 3, 4])
def test_a_snapshot_taken_after_a_rescale_is_exported_with_each_row_once(
    scene: Scene, tmp_path: Path, parallelism: int
) -> None:
    """Nothing of what was restored at parallelism 3 had been read when it was taken."""
    name = rewritten(scene.location, lambda metadata: taken_at(metadata, at(scene.graph, 3)))
    export_snapshot(str(scene.location), name, tmp_path / "portable")
    convert_snapshot(tmp_path / "portable", tmp_path / "back")
    job = at(scene.graph, parallelism)
    before, after = restored(scene.location, job), restored(tmp_path / "back", job)
    assert any(described[-1] for _, entries in before[2::2] for described, *_ in entries), "some are narrowed"
    assert without_how(after) == without_how(before)
    exported = {
        consumer: stream_rows(tmp_path / f"portable/inflight/0/consumer-{consumer:05d}.arrows") for consumer in range(3)
    }
    there = [rows for _, entries in restored(scene.location, at(scene.graph, 2))[2::2] for _, _, rows, _ in entries]
    flying = Counter(row["key"] for rows in there for row in rows)
    assert sum((Counter(keys) for keys in exported.values()), Counter()) == flying, "each row once"
    assert all(key_groups_owner(key) == consumer for consumer, keys in exported.items() for key in keys)
    assert sum(stream.rows for stream in read_manifest(tmp_path / "portable").streams) == flying.total()


@pytest.mark.parametrize("parallelism", [1, 3, 4])
def test_what_an_earlier_release_exported_after_a_rescale_is_read(
    scene: Scene, tmp_path: Path, parallelism: int
) -> None:
    """It wrote all rows of a section for each of its consumers, with ``narrowed`` true."""
    rewritten(scene.location, lambda metadata: taken_at(metadata, at(scene.graph, 3)))
    convert_snapshot(NARROWED, tmp_path / "back")
    job = at(scene.graph, parallelism)
    assert without_how(restored(tmp_path / "back", job)) == without_how(restored(scene.location, job))


def without_how(parts: list[Any]) -> list[Any]:
    """Return what subtasks restore, the rows in flight by channel and key, however many entries they lie in."""
    return [(part[0], by_channel_and_key(part[1])) if len(part) == 2 else part for part in parts]


def by_channel_and_key(entries: Sequence[Any]) -> dict[Any, list[Any]]:
    """The order of a channel's rows is promised for each key."""
    rows: dict[Any, list[Any]] = {}
    for described, _, of_entry, _ in entries:
        for row in of_entry:
            rows.setdefault((described[:-1], row["key"]), []).append(row)
    return rows


def stream_rows(path: Path) -> list[int]:
    """The keys of all batches, none of which says that others are among its rows."""
    found: list[int] = []
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        for _ in range(1000):
            try:
                batch, custom = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            assert custom[b"narrowed"] == b"false"
            found += batch["key"].to_pylist()
    return found


def key_groups_owner(key: int) -> int:
    return int(groups_of([pa.array([key])], 1, 128)[0]) * 3 // 128


def test_rows_of_an_earlier_plan_come_as_those_of_the_snapshots_plan(scene: Scene, tmp_path: Path) -> None:
    """Values became wider, and a column is not sent any more; nothing was written since."""

    def later_plan(metadata: SnapshotMetadata) -> SnapshotMetadata:
        assert metadata.plan is not None
        operators = copy.deepcopy(metadata.plan.operators)
        operators[COUNT]["states"] = {"counts": ["__key_group int16", "key int64", "count decimal128(25, 2)"]}
        return msgspec.structs.replace(metadata, plan=PlanManifest(operators, metadata.plan.edges))

    count = pa.array([7], pa.decimal128(20, 0))
    batch = pa.record_batch([pa.array([3], pa.int16()), pa.array([1]), count], names=["__key_group", "key", "count"])
    location, _ = one_table(tmp_path / "one", batch)
    export_snapshot(str(location), rewritten(location, later_plan), tmp_path / "wide")
    row = pq.read_table(tmp_path / "wide/state/count-1/counts/part-00000.parquet").to_pylist()
    assert row == [{"__key_group": 3, "key": 1, "count": Decimal("7.00")}]

    def fewer_columns(metadata: SnapshotMetadata) -> SnapshotMetadata:
        assert metadata.plan is not None
        edges = copy.deepcopy(metadata.plan.edges)
        edges["0"]["schema"] = ["key int64"]
        return msgspec.structs.replace(metadata, plan=PlanManifest(metadata.plan.operators, edges))

    export_snapshot(str(scene.location), rewritten(scene.location, fewer_columns), tmp_path / "few")
    stream = pa.ipc.open_stream((tmp_path / "few/inflight/0/consumer-00000.arrows").read_bytes())
    assert stream.schema.names == ["key"]
    convert_snapshot(tmp_path / "few", tmp_path / "back")

    def unrelated(metadata: SnapshotMetadata) -> SnapshotMetadata:
        changed = later_plan(metadata)
        changed.plan.operators[COUNT]["states"] = {"counts": ["__key_group int16", "other string"]}  # type: ignore[union-attr]
        return changed

    with pytest.raises(CorruptSnapshot, match="has no column 'other string'"):
        export_snapshot(str(location), rewritten(location, unrelated), tmp_path / "other")


def test_the_metadata_is_the_same_but_for_where_data_lies(made: tuple[Scene, Path, Path]) -> None:
    scene, _, back = made

    def bare(location: Path) -> Any:
        store = LocalStore(location)
        record = SnapshotLog(store).refresh().lineage[-1]
        metadata = Catalog(store).read(record)
        slots = [
            msgspec.structs.replace(
                s, subtasks=[msgspec.structs.replace(t, states=[], inflight=[]) for t in s.subtasks]
            )
            for s in metadata.slots
        ]
        sources = [msgspec.structs.replace(source, sections=[]) for source in metadata.sources]
        return record.requested, record.label, msgspec.structs.replace(metadata, slots=slots, sources=sources)

    assert bare(back) == bare(scene.location)
    assert bare(back)[:2] == (True, LABEL)


def test_no_file_holds_the_path_of_a_location(made: tuple[Scene, Path, Path]) -> None:
    scene, portable, back = made
    for directory in (portable, back):
        for name in names(directory):
            content = (directory / name).read_bytes()
            assert str(scene.location).encode() not in content
            assert str(portable).encode() not in content
    assert (portable / KEPT).read_bytes() == (back / KEPT).read_bytes() == b"rows that a split names"


def test_a_table_is_one_row_per_key_by_key_group_in_row_groups_that_can_be_passed_over(
    made: tuple[Scene, Path, Path],
) -> None:
    scene, portable, _ = made
    for index, table in enumerate(scene.tables):
        file = pq.ParquetFile(portable / f"state/count-1/counts/part-{index:05d}.parquet")
        rows = file.read().to_pylist()
        assert {row["key"]: row["count"] for row in rows} == {key: count for (key,), count in table.items()}
        assert len(rows) == len(table)
        ranges = [file.metadata.row_group(i).column(0).statistics for i in range(file.num_row_groups)]
        assert len(ranges) > 3
        assert all(one.max < other.min for one, other in pairwise(ranges))
        assert [row["__key_group"] for row in rows] == sorted(row["__key_group"] for row in rows)


def test_the_new_location_is_a_fork_that_a_query_goes_on_in(made: tuple[Scene, Path, Path], tmp_path: Path) -> None:
    _, _, back = made
    location = tmp_path / "back"
    shutil.copytree(back, location)
    store = open_location(str(location))
    identity = claim_identity(store, identity_of(graph(2), "proposed"))
    assert (identity.origin, identity.query_id != "query-1") == ("query-1", True)
    assert start_fork(None, store, identity, graph(2)) is None, "it has begun"
    checkpoint = SnapshotLog(store).refresh().lineage[-1].checkpoint
    fork = Driver(store, Target(), source=NoSource(), parallelism=2, query_id=identity.query_id)
    ready = fork.start()
    assert (ready.opened.restored, ready.opened.committed_epoch, ready.opened.pending) == (checkpoint, checkpoint, ())
    assert ready.opened.next_checkpoint == checkpoint + 1
    own = fork.checkpoint()
    assert sorted(fork.committer.target.visible) == [own], "epochs up to the snapshot are the origin's to commit"


def test_a_query_may_start_from_the_new_location_too(made: tuple[Scene, Path, Path], tmp_path: Path) -> None:
    _, _, back = made
    store = open_location(str(tmp_path / "third"))
    there = read_identity(LocalStore(back)).query_id
    identity = claim_identity(store, identity_of(graph(2), "query-3", there))
    begins_with = start_fork(Origin(str(back)), store, identity, graph(2))
    Driver(store, Target(), parallelism=2, query_id="query-3", forked=begins_with)
    SnapshotLog(store, lambda: "token").append(begins_with)  # type: ignore[arg-type]
    assert restored(tmp_path / "third", graph(2)) == restored(back, graph(2))


def test_what_is_there_already_is_never_touched(scene: Scene, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    with pytest.raises(LocationError, match="not an empty folder"):
        export_snapshot(str(scene.location), "chk-1", full)
    export_snapshot(str(scene.location), "chk-1", tmp_path / "portable")
    with pytest.raises(LocationError, match="not an empty folder"):
        convert_snapshot(tmp_path / "portable", full)
    assert names(full) == ["mine"]


def fails(real: Callable[..., Any], step: int) -> Callable[..., Any]:
    """The call behind ``step`` others finds the disk full."""
    calls = iter(range(step))

    def call(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    return call


def test_nothing_half_written_stays_wherever_it_fails(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_snapshot(str(scene.location), LABEL, tmp_path / "portable")
    before = sorted(os.listdir(tmp_path))
    real = os.fsync
    for verb in (
        lambda: export_snapshot(str(scene.location), LABEL, tmp_path / "out"),
        lambda: convert_snapshot(tmp_path / "portable", tmp_path / "out"),
    ):
        verb()
        shutil.rmtree(tmp_path / "out")
        for step in range(8):  # there are more
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fails(real, step))
                with pytest.raises(LocationError, match="No space left"):
                    verb()
            assert sorted(os.listdir(tmp_path)) == before


def test_a_snapshot_that_is_not_there_or_goes_meanwhile_is_named(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LocationError, match=r"there is no snapshot 'chk-9'; there are: chk-2 .*, chk-1"):
        export_snapshot(str(scene.location), "chk-9", tmp_path / "portable")
    data = sorted((scene.location / "data").glob("*-state.arrows"))
    for path in data:
        path.unlink()
    with pytest.raises(CorruptSnapshot, match="chk-2 is damaged"):
        export_snapshot(str(scene.location), "chk-2", tmp_path / "portable")
    monkeypatch.setattr(SnapshotLog, "refresh", gone_after_one(SnapshotLog.refresh))
    with pytest.raises(LocationError, match="chk-2 was deleted while it was read"):
        export_snapshot(str(scene.location), "chk-2", tmp_path / "portable")
    assert sorted(os.listdir(tmp_path)) == ["native"]


def gone_after_one(real: Callable[[SnapshotLog], LogView]) -> Callable[[SnapshotLog], LogView]:
    """The owner deletes everything after the first look."""
    calls = iter([True])

    def refresh(self: SnapshotLog) -> LogView:
        view = real(self)
        return view if next(calls, False) else replace(view, snapshots=())

    return refresh


def test_changes_without_a_known_key_are_refused(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "key_column_count", lambda *_: None)
    with pytest.raises(NotSupported, match="does not tell which columns are its key"):
        export_snapshot(str(scene.location), LABEL, tmp_path / "portable")
    monkeypatch.setattr(export, "key_column_count", lambda *_: 0)
    with pytest.raises(CorruptSnapshot, match="base rows with the same key"):
        export_snapshot(str(scene.location), LABEL, tmp_path / "portable")


def test_ranges_of_key_groups_have_all_of_them_once(scene: Scene) -> None:
    metadata = Catalog(scene.store).read(SnapshotLog(scene.store).refresh().lineage[-1])
    entries: list[StateEntry] = [e for slot in metadata.slots for one in slot.subtasks for e in one.states]
    last = max(entry.key_group_last for entry in entries)
    for size in (1, 1000, 10_000, 1 << 40):
        ranges = list(split_key_groups(entries, (0, last), size))
        groups = [group for one, other in ranges for group in range(one, other + 1)]
        assert groups == sorted(set(groups)), "none is read twice"
        covered = {g for e in entries for g in range(e.key_group_first, e.key_group_last + 1) if e.rows}
        assert covered <= set(groups)
    assert len(ranges) == 1
    assert list(split_key_groups([], (0, last), 1)) == []


def test_names_become_harmless_names_of_folders() -> None:
    assert safe_file_name("agg-1") == "agg-1"
    for name in ("", ".", "..", "../x", "_hidden", "a/b", "ä", "a b", "x" * 300):
        made = safe_file_name(name)
        assert made.replace("-", "").isalnum()
        assert made.isascii()
        assert len(made) < 100
    assert safe_file_name("a b") != safe_file_name("a-b")
    assert safe_file_name("a b") != safe_file_name("a.b")


def test_on_the_command_line(scene: Scene, tmp_path: Path) -> None:
    portable, back = str(tmp_path / "portable"), str(tmp_path / "back")
    run = CliRunner().invoke(app, ["snapshot", "export", str(scene.location), LABEL, portable, "--json"])
    assert run.exit_code == 0
    said = json.loads(run.stdout)
    assert (said["snapshot"], said["query_id"], said["inflight_rows"] > 10) == ("chk-2", "query-1", True)
    assert said["files"] == len(names(Path(portable)))
    run = CliRunner().invoke(app, ["snapshot", "convert", portable, back])
    assert (run.exit_code, "chk-2 of query query-1" in run.stdout) == (0, True)
    assert json.loads((Path(back) / "query.json").read_text())["body"]["origin"] == "query-1"
    run = CliRunner().invoke(app, ["snapshot", "convert", portable, back])
    assert (run.exit_code, "not an empty folder" in run.stderr) == (1, True)
    run = CliRunner().invoke(app, ["snapshot", "convert", str(tmp_path / "nothing"), back])
    assert (run.exit_code, "no portable snapshot" in run.stderr) == (1, True)


def test_a_source_that_takes_its_input_away_cannot_be_started_again(scene: Scene, tmp_path: Path) -> None:
    export_snapshot(str(scene.location), LABEL, tmp_path / "portable")
    manifest = read_manifest(tmp_path / "portable")
    assert manifest.metadata.plan is not None
    manifest.metadata.plan.operators["source-1"]["takes_away"] = True
    with pytest.raises(LocationError, match=r"source-1 .* takes its input away"):
        checked_manifest(manifest, "here")
