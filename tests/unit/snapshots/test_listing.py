"""Commands that list and show snapshots; they change nothing at the location."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import CorruptSnapshot, LocationError, PenstockError
from penstock.model.manifest import InflightEntry, PlanManifest
from penstock.model.splits import Split
from penstock.snapshots.commands import listing, ownership
from penstock.snapshots.commands import narrowed_rows as own_rows
from penstock.snapshots.commands.bottleneck import QUEUED_BYTES, InputLoad, find_bottleneck
from penstock.snapshots.commands.deleting import choose_deletable
from penstock.snapshots.commands.listing import Listing, list_snapshots
from penstock.snapshots.commands.location_cache import LocationCache
from penstock.snapshots.commands.opened_location import OpenedLocation, open_location_to_read
from penstock.snapshots.commands.showing import SnapshotDetails, show_snapshot
from penstock.snapshots.format.plan import key_column_count
from penstock.snapshots.restoring.restore import load_inflight
from penstock.snapshots.store.store import LocalStore, Store
from simulator.jobs.rows import group_of
from tests.support.snapshots.location_kit import Kept, contents, flip
from tests.support.snapshots.portable_kit import Scene, at, rewritten, taken_at
from tests.support.snapshots.snapshot_kit import COUNT, SOURCE

TAKEN_MS = 1_700_000_000_000
"""When every snapshot of the kit was taken."""


def show(location: Path, name: str, *, count_rows: bool = False) -> SnapshotDetails:
    opened = open_location_to_read(str(location))
    return show_snapshot(opened, opened.record(name), TAKEN_MS, count_rows=count_rows)


def test_a_listing_says_what_each_snapshot_holds_and_costs(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 2)
    kept.put({key: key for key in range(400)})
    first = kept.snapshot()
    second = kept.snapshot("mine", in_flight=5)
    before = contents(tmp_path)
    lines = list_snapshots(open_location_to_read(str(tmp_path)), TAKEN_MS + 90_000).snapshots
    assert contents(tmp_path) == before
    assert [(line.id, line.kind, line.label) for line in lines] == [
        (f"chk-{first}", "periodic", ""),
        (f"chk-{second}", "requested", "mine"),
    ]
    one, other = lines
    assert {line.age_s for line in lines} == {90.0}
    assert (one.generation, one.parallelism, one.subtasks, one.in_lineage) == (1, 2, 4, True)
    assert (one.state_rows, other.state_rows) == (400, 400)
    assert (one.inflight_rows, other.inflight_rows) == (0, 10)
    files = {path: size for path, size in sizes(tmp_path).items() if path.startswith("data/")}
    own = {path: size for path, size in files.items() if path.startswith(f"data/1-{second}-")}
    assert one.state_bytes == other.state_bytes == sum(files.values()) - sum(own.values()), "the state was referred to"
    assert other.inflight_bytes == sum(own.values()) > 0
    metadata = sizes(tmp_path)[f"snapshots/chk-{second}/metadata.json"]
    assert other.bytes == sum(files.values()) + metadata
    assert other.exclusive_bytes == sum(own.values()) + metadata, "what both refer to stays when one goes"
    assert one.exclusive_bytes == sizes(tmp_path)[f"snapshots/chk-{first}/metadata.json"]


@pytest.mark.parametrize("damaged", [0, 2, 3])
def test_a_listing_says_which_snapshots_cannot_be_deleted_and_why(tmp_path: Path, damaged: int) -> None:
    kept = Kept(tmp_path)
    for _ in range(3):
        kept.snapshot()
    kept.player.end_generation()
    if damaged:
        flip(tmp_path / "snapshots" / f"chk-{damaged}" / "metadata.json")
    opened = open_location_to_read(str(tmp_path))
    said = {line.checkpoint: line.not_deletable for line in list_snapshots(opened, TAKEN_MS).snapshots}
    assert said == {checkpoint: refusal_at(opened, checkpoint) for checkpoint in (1, 2, 3)}
    deletable = {checkpoint for checkpoint, why in said.items() if not why}
    assert deletable == {0: {1, 2}, 2: {2}, 3: set()}[damaged]
    pinned = {line.checkpoint: line.not_deletable for line in list_snapshots(opened, TAKEN_MS, [2]).snapshots}
    assert "builds on chk-2" in pinned[2]
    assert {**pinned, 2: said[2]} == said


def test_rows_in_flight_after_a_rescale_are_counted_once_and_not_again_by_the_next_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, rounds=1)
    rewritten(scene.location, lambda metadata: taken_at(metadata, at(scene.graph, 3)))
    read: list[InflightEntry] = []

    def load(store: Store, entry: InflightEntry) -> list[pa.RecordBatch]:
        read.append(entry)
        return load_inflight(store, entry)

    monkeypatch.setattr(own_rows, "load_inflight", load)
    opened = open_location_to_read(str(scene.location))
    before, after = list_snapshots(opened, TAKEN_MS).snapshots
    assert read
    assert after.inflight_rows == before.inflight_rows > 0
    read.clear()
    assert list_snapshots(opened, TAKEN_MS).snapshots == [before, after]
    assert not read


def refusal_at(opened: OpenedLocation, checkpoint: int) -> str:
    try:
        ownership.preview_deletion(opened.store, choose_deletable("there", opened.view, [f"chk-{checkpoint}"]))
    except LocationError as refused:
        return str(refused)
    return ""


def sizes(location: Path) -> dict[str, int]:
    return {path: len(data) for path, (data, _) in contents(location).items()}


def test_snapshots_that_left_the_lineage_say_so(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.snapshot()
    lost = kept.snapshot()
    kept.player.end_generation()
    flip(tmp_path / "snapshots" / f"chk-{lost}" / "metadata.json")
    with pytest.raises(CorruptSnapshot):
        Kept(tmp_path)
    Kept(tmp_path, allow_older=True)
    lines = list_snapshots(open_location_to_read(str(tmp_path)), TAKEN_MS).snapshots
    assert [line.in_lineage for line in lines] == [True, False]
    assert [bool(line.problem) for line in lines] == [False, True]
    assert f"chk-{lost}/metadata.json does not match its checksum" in lines[1].problem


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Listing]:
    """Lists a location with a cache in ``tmp_path``, kept from two snapshots on."""
    monkeypatch.setattr(listing, "CACHED_FROM", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda location: list_snapshots(open_location_to_read(str(location), cached=True), TAKEN_MS)


def test_what_was_read_is_kept_outside_of_the_location_and_never_trusted_blindly(
    tmp_path: Path, cached: Callable[[Path], Listing]
) -> None:
    kept = Kept(tmp_path / "chk")
    cache = LocationCache.of(str(kept.location))
    kept.put({1: 1})
    kept.snapshot()
    alone = cached(kept.location)
    assert not cache.path.exists(), "few snapshots need none"
    kept.put({1: 2})
    kept.snapshot()
    cold = cached(kept.location)
    assert cold.snapshots[0].bytes == alone.snapshots[0].bytes
    known = cache.load(LocalStore(kept.location))
    assert (len(known.measures), known.log.next_seq, len(known.sizes)) == (2, 5, 2)
    metadata = kept.location / "snapshots" / "chk-1" / "metadata.json"
    log = kept.location / "log" / f"{2:020d}.json"
    hidden = [path.rename(path.with_suffix(".hidden")) for path in (metadata, log)]
    assert cached(kept.location) == cold, "neither metadata nor the log is read again"
    hidden[1].rename(log)
    whole = cache.path.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])  # a digit of a size: it can be read all the same
    for damage in (b"", flipped, whole[:-1], b"penstock location 0\n" + whole[20:]):
        cache.path.write_bytes(damage)
        assert cached(kept.location).snapshots[0].problem, "and read where the cache is not whole"
    hidden[0].rename(metadata)
    assert cached(kept.location) == cold
    cache.path.unlink()
    cache.path.mkdir()
    assert cached(kept.location) == cold, "a cache that cannot be written is none"


def test_a_cache_goes_on_with_the_log_and_knows_another_location_at_the_same_place(
    tmp_path: Path, cached: Callable[[Path], Listing]
) -> None:
    kept = Kept(tmp_path / "chk")
    for value in range(3):
        kept.put({1: value})
        kept.snapshot()
        listed = cached(kept.location)
        assert listed == list_snapshots(open_location_to_read(str(kept.location)), TAKEN_MS)
    shutil.rmtree(kept.location)
    again = Kept(tmp_path / "chk")
    for value in range(3):
        again.put(dict.fromkeys(range(1000), value))
        again.snapshot()
    other = cached(again.location)
    assert other == list_snapshots(open_location_to_read(str(again.location)), TAKEN_MS)
    assert other.snapshots[-1].exclusive_bytes > listed.snapshots[-1].exclusive_bytes


def test_a_snapshot_that_is_deleted_meanwhile_is_not_damaged(tmp_path: Path) -> None:
    kept = Kept(tmp_path, retained=2)
    kept.put({1: 1})
    first = kept.snapshot()
    opened = open_location_to_read(str(tmp_path))
    for _ in range(3):
        kept.snapshot()
    assert not list_snapshots(opened, TAKEN_MS).snapshots
    with pytest.raises(LocationError, match=f"chk-{first} was deleted while it was read"):
        opened.metadata(opened.record(str(first)))


def test_show_translates_the_plan_and_counts_what_metadata_tells(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 2)
    kept.put({key: key for key in range(400)})
    split = Split("part-7", {"path": "x"}, {"rows": 3})
    kept.snapshot("mine", in_flight=5, watermark=7_000_000, splits=[split])
    before = contents(tmp_path)
    shown = show(tmp_path, "mine")
    assert contents(tmp_path) == before
    by_id = {operator.operator_id: operator for operator in shown.operators}
    assert by_id[COUNT].name == "Count (count-1)"
    (table,) = by_id[COUNT].tables
    assert (table.name, table.keys, table.rows) == ("counts", ["key"], 400)
    assert table.skew is not None
    assert not table.skew.counted
    (source,) = shown.sources
    assert (source.operator_id, source.kind) == (SOURCE, "NoSource")
    assert [(s.split_id, s.position, s.subtask) for s in source.reading] == [("part-7", {"rows": 3}, 0)]
    (edge,) = shown.edges
    assert (edge.producer, edge.consumer) == ("NoSource (source-1)", "Count (count-1) + NoSink (sink-1)")
    assert edge.watermark_us == 7_000_000
    assert {(c.producer, c.consumer): c.rows for c in edge.channels} == {(0, 0): 5, (0, 1): 0, (1, 0): 5, (1, 1): 0}
    assert {(subtask.vertex, subtask.index) for subtask in shown.subtasks} == {
        (vertex, index) for vertex in (edge.producer, edge.consumer) for index in (0, 1)
    }


def test_counted_rows_tell_the_skew(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put(dict.fromkeys(range(600), 0))
    kept.snapshot()
    kept.put(dict.fromkeys(range(0, 600, 9), 1), removed=tuple(range(5)))
    newest = kept.snapshot()
    (table,) = next(o for o in show(tmp_path, str(newest), count_rows=True).operators if o.tables).tables
    groups = [group_of(key, 128) for key in kept.content]
    most = max(groups.count(group) for group in groups)
    assert table.rows == len(kept.content) == 595
    assert table.skew is not None
    assert (table.skew.counted, table.skew.rows) == (True, most)
    assert table.skew.skew == pytest.approx(most * 128 / 595)
    assert groups.count(table.skew.group) == most


@pytest.mark.parametrize("count_rows", [False, True])
def test_fewer_rows_than_key_groups_are_not_skewed(tmp_path: Path, count_rows: bool) -> None:
    keys = {group_of(key, 128): key for key in range(40)}.values()
    kept = Kept(tmp_path)
    kept.put(dict.fromkeys(keys, 0))
    kept.snapshot()
    (operator,) = [one for one in show(tmp_path, "1", count_rows=count_rows).operators if one.tables]
    skew = operator.tables[0].skew
    assert skew is not None
    assert (skew.skew, skew.counted, len(keys) > 20) == (1.0, count_rows, True)


# -- the bottleneck ---------------------------------------------------------------------------------------------------

FULL = 10 * QUEUED_BYTES


def load(vertex: int, held: int, *outputs: int) -> InputLoad:
    return InputLoad(vertex, outputs, held, {0: held // 4, 1: held - held // 4})


@pytest.mark.parametrize(
    ("loads", "slow"),
    [
        ([load(1, FULL, 2), load(2, FULL, 3), load(3, 0)], 2),  # the last full one, not the first
        ([load(1, FULL, 2), load(2, FULL // 2, 3), load(3, FULL // 3)], 3),
        ([load(1, FULL, 2), load(2, FULL // 20, 3), load(3, 0)], 1),  # what is behind holds little
        ([load(1, QUEUED_BYTES, 2), load(2, QUEUED_BYTES)], None),  # no queue stands
        ([load(1, FULL, 2, 3), load(2, 2 * FULL), load(3, FULL)], 2),  # branches: where most waits
        ([load(1, FULL, 2, 3), load(2, 0, 4), load(3, 0), load(4, FULL)], 4),  # past a join that holds nothing
        ([], None),
    ],
)
def test_the_bottleneck_is_the_last_full_input(loads: list[InputLoad], slow: int | None) -> None:
    found = find_bottleneck(loads, 2)
    assert (found and found.vertex) == slow
    if found:
        assert found.subtask == 1
        assert found.share == pytest.approx(0.75, abs=1e-3)


@pytest.mark.parametrize(("held", "parallelism", "subtask"), [((3,), 1, -1), ((5, 7, 6), 3, -1), ((4, 9, 5), 3, 1)])
def test_a_subtask_is_named_only_if_it_holds_more_than_its_share(
    held: tuple[int, ...], parallelism: int, subtask: int
) -> None:
    by_subtask = {index: part * QUEUED_BYTES for index, part in enumerate(held)}
    found = find_bottleneck([InputLoad(1, [], sum(by_subtask.values()), by_subtask)], parallelism)
    assert found is not None
    assert (found.subtask, found.share) == (subtask, 0.5 if subtask >= 0 else 0.0)


def test_the_bottleneck_has_a_name_and_an_aligned_snapshot_tells_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 2)
    kept.snapshot()
    kept.snapshot(in_flight=40_000)
    nothing, full = show(tmp_path, "1").bottleneck, show(tmp_path, "2").bottleneck
    assert not nothing.vertex
    assert "captured aligned" in nothing.explanation
    assert (full.vertex, full.subtask, full.share) == ("Count (count-1) + NoSink (sink-1)", 0, 1.0)


@pytest.mark.parametrize(
    ("columns", "edge_keys", "count"),
    [
        (["__key_group int16", "k int64", "v string"], ["k"], 1),
        (["__key_group int16", "a b int64", "v string", "n int64"], ["a b", "v"], 2),
        (["__key_group int16", "k int64", "__changed bool", "sum int64"], [], 1),
        (["__key_group int16", "__changed bool", "sum int64"], [], 0),
        (["__key_group int16", "kk int64", "v string"], ["k"], None),
        (["__key_group int16", "k int64"], [], None),
    ],
)
def test_key_columns_are_told_by_the_plan(columns: list[str], edge_keys: list[str], count: int | None) -> None:
    plan = PlanManifest(
        {"op": {"role": "operator", "name": "Op", "states": {"t": columns}, "vertex": 1}},  # type: ignore[dict-item]
        {"e": {"id": 0, "producer": 0, "consumer": 1, "kind": "hash", "keys": edge_keys}},  # type: ignore[dict-item]
    )
    assert key_column_count(plan, "op", "t") == count


# -- bad input --------------------------------------------------------------------------------------------------------


def spark_checkpoint(folder: Path) -> None:
    (folder / "offsets").mkdir()
    (folder / "metadata").write_text("{}")


def foreign(folder: Path) -> None:
    (folder / "notes.txt").write_text("x")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda folder: None, "is empty; give the checkpointLocation of a query"),
        (lambda folder: folder.rmdir(), "there is no such folder; give the checkpointLocation"),
        (spark_checkpoint, "one of Spark's own Structured Streaming.*give the checkpointLocation of a query"),
        (foreign, r"not Penstock's \(notes.txt\); give the checkpointLocation of a query"),
    ],
)
def test_what_is_no_location_is_named_with_the_way_out(tmp_path: Path, make: object, text: str) -> None:
    folder = tmp_path / "chk"
    folder.mkdir()
    make(folder)  # type: ignore[operator]
    before = list(tmp_path.rglob("*"))
    with pytest.raises(LocationError, match=rf"{folder}.*{text}"):
        open_location_to_read(str(folder))
    assert list(tmp_path.rglob("*")) == before


def test_snapshots_are_found_by_id_number_and_label(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    first = kept.snapshot("mine")
    kept.snapshot("twice")
    kept.snapshot("twice")
    opened = open_location_to_read(str(tmp_path))
    assert {opened.record(name).checkpoint for name in ("mine", f"chk-{first}", str(first))} == {first}
    with pytest.raises(LocationError, match="several snapshots have the label 'twice'; give an id: chk-2, chk-3"):
        opened.record("twice")
    with pytest.raises(LocationError, match=r"there is no snapshot 'x'; there are: chk-3 \('twice'\), chk-2"):
        opened.record("x")
    with pytest.raises(LocationError, match="there is no snapshot ''"):
        opened.record("")


@pytest.mark.parametrize("path", ["query.json", "log/00000000000000000003.json"])
def test_a_damaged_log_or_identity_is_named(tmp_path: Path, path: str) -> None:
    Kept(tmp_path).snapshot()
    flip(tmp_path / path)
    with pytest.raises(PenstockError, match=rf"{tmp_path}.*{path}.*verify"):
        open_location_to_read(str(tmp_path))


def test_damaged_metadata_is_named_with_its_snapshot(tmp_path: Path) -> None:
    Kept(tmp_path).snapshot()
    flip(tmp_path / "snapshots" / "chk-1" / "metadata.json")
    with pytest.raises(CorruptSnapshot, match=r"chk-1 is damaged: .*metadata.json does not match .*verify"):
        show(tmp_path, "chk-1")
