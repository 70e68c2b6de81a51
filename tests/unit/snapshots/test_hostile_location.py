"""A checkpoint location may be somebody else's work: whatever it holds ends in one error of the tree."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.errors import CorruptSnapshot, LocationError, PenstockError
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.location import open_location
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.store.store import LocalStore
from tests.support.snapshots.hostile import (
    Body,
    completes,
    log_entries,
    put_metadata,
    read_everything,
    replace_section,
    reseal,
    rewrite_metadata,
    sections,
)
from tests.support.snapshots.portable_kit import KEPT, Scene, names, stream_bytes

NEWEST = 3
METADATA = f"snapshots/chk-{NEWEST}/metadata.json"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"), rounds=NEWEST)


@pytest.fixture
def location(scene: Scene, tmp_path: Path) -> Path:
    return Path(shutil.copytree(scene.location, tmp_path / "location"))


def refusals(location: Path, scene: Scene) -> str:
    """Return the error texts; there is at least one."""
    found = read_everything(location, scene.graph)
    assert found
    return "\n".join(map(str, found))


def test_what_is_whole_is_not_refused(location: Path, scene: Scene) -> None:
    assert read_everything(location, scene.graph) == []


# -- files that are none ----------------------------------------------------------------------------------------------

FILES = ["query.json", "log/00000000000000000003.json", METADATA, f"data/1-{NEWEST}-0-state.arrows"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["link", "link within", "dangling link", "fifo", "folder", "link to its folder"])
def test_what_is_no_plain_file_is_not_opened(location: Path, scene: Scene, name: str, kind: str) -> None:
    path, outside = location / name, location.parent / "outside"
    if kind == "link to its folder":
        if path.parent == location:
            return
        shutil.move(path.parent, outside)
        path.parent.symlink_to(outside)
    else:
        shutil.move(path, outside if kind != "link within" else location / "within")
        {
            "link": lambda: path.symlink_to(outside),
            "link within": lambda: path.symlink_to(location / "within"),
            "dangling link": lambda: path.symlink_to(location.parent / "nowhere"),
            "fifo": lambda: os.mkfifo(path),
            "folder": path.mkdir,
        }[kind]()
    assert "is a link, or behind one, or no plain file" in refusals(location, scene)


@pytest.mark.parametrize("folder", ["data", "snapshots", "log", "requests", "lane"])
def test_nothing_is_written_or_removed_behind_a_link(tmp_path: Path, folder: str) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "precious").write_text("as it was")
    (tmp_path / "location").mkdir()
    (tmp_path / "location" / folder).symlink_to(outside)
    store = LocalStore(tmp_path / "location")
    for attempt in (
        lambda: store.create_if_absent(f"{folder}/new", b"x"),
        lambda: store.create(f"{folder}/inner/new"),
        lambda: store.delete(f"{folder}/precious"),
        lambda: store.list(folder),
        lambda: store.read(f"{folder}/precious"),
        lambda: store.size(f"{folder}/precious"),
    ):
        with pytest.raises(CorruptSnapshot, match="is a link"):
            attempt()
    assert names(outside) == ["precious"]
    assert (outside / "precious").read_text() == "as it was"


OPERATIONS: dict[str, Callable[[LocalStore], object]] = {
    "create_if_absent": lambda store: store.create_if_absent("data/new", b"x"),
    "create": lambda store: store.create("data/new").close(),
    "abandon": lambda store: store.create("data/new").abandon(),
    "delete": lambda store: store.delete("data/precious"),
    "delete the folder": lambda store: store.delete("data/inner/precious"),
    "copy to": lambda store: store.copy_from("data/precious", LocalStore(f"{store.root}/../origin"), "data/new"),
    "copy from": lambda store: LocalStore(f"{store.root}/../origin").copy_from("data/precious", store, "data/new"),
}


@pytest.mark.parametrize("moment", range(12))
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_folder_that_becomes_a_link_at_any_moment_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, moment: int
) -> None:
    """Another user of the folder replaces ``data`` after this number of system calls."""
    location, outside = tmp_path / "location", tmp_path / "outside"
    for place in (location, outside, tmp_path / "origin"):
        (place / "data" / "inner").mkdir(parents=True)
        (place / "data" / "precious").write_text(place.name)
        (place / "data" / "inner" / "precious").write_text(place.name)
    calls = itertools.count()

    def swapping(real: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if next(calls) == moment:
            os.rename(location / "data", location / "moved")
            os.symlink(outside / "data", location / "data")
        return real(*args, **named)

    for name in ("open", "stat", "lstat", "link", "unlink", "rmdir", "replace", "mkdir"):
        monkeypatch.setattr(os, name, partial(swapping, getattr(os, name)))
    with suppress(OSError, CorruptSnapshot):
        OPERATIONS[operation](LocalStore(location))
    monkeypatch.undo()
    assert names(outside) == ["data/inner/precious", "data/precious"]
    assert (outside / "data" / "precious").read_text() == "outside"
    brought = tmp_path / "origin" / "data" / "new"
    assert not brought.exists() or brought.read_text() == "location"


@pytest.mark.parametrize("name", ["staged", "lane/source-1", "staged/sink-1"])
def test_a_query_does_not_start_where_it_would_write_behind_a_link(location: Path, name: str) -> None:
    outside, inside = location.parent / "outside", location / name
    outside.mkdir()
    shutil.rmtree(inside, ignore_errors=True)
    inside.parent.mkdir(exist_ok=True)
    inside.symlink_to(outside)
    with pytest.raises(CorruptSnapshot, match="is a link"):
        open_location(str(location))


def test_a_location_that_is_itself_reached_by_a_link_is_one(location: Path, scene: Scene) -> None:
    (location.parent / "by-another-name").symlink_to(location)
    assert read_everything(location.parent / "by-another-name", scene.graph) == []


# -- JSON -------------------------------------------------------------------------------------------------------------

NO_JSON = [b"", b"\xff\xfe", b"[" * 200_000, b"9" * 100_000, b'{"body": NaN, "checksum": ""}', b"{}", b"null"]
NO_JSON += [b'{"body": "\\ud800", "checksum": ""}', b'{"body": 1e999, "checksum": ""}', b'{"a":' * 5000]


@pytest.mark.parametrize("number", range(len(NO_JSON)))
@pytest.mark.parametrize("name", ["query.json", "log/00000000000000000003.json", METADATA])
def test_what_is_no_json_is_refused(location: Path, scene: Scene, name: str, number: int) -> None:
    if name == METADATA:
        put_metadata(location, NEWEST, NO_JSON[number])
    else:
        (location / name).write_bytes(NO_JSON[number])
    assert read_everything(location, scene.graph, newest_only=name != "query.json")


@pytest.mark.parametrize("depth", [100, 300, 450, 900, 5000])
def test_brackets_in_metadata_may_be_deep(location: Path, scene: Scene, depth: int) -> None:
    text = (location / METADATA).read_bytes().replace(b'"a":[null]', b'"a":' + b"[" * depth + b"]" * depth)
    put_metadata(location, NEWEST, text)
    read_everything(location, scene.graph)  # some depth is none of our business, and more is refused


# -- numbers and paths ------------------------------------------------------------------------------------------------

HUGE = [-1, -(1 << 70), 1 << 40, 1 << 62, 1 << 70, 1e300, True, None, "7"]
"""``1 << 40`` is in range for what counts bytes and rows; then there are not so many."""


def subtask(metadata: Body) -> Body:
    return next(s for slot in metadata["slots"] for s in slot["subtasks"] if s["states"] and s["inflight"])


NUMBERS: dict[str, Callable[[Body], tuple[Body, str]]] = {
    "parallelism": lambda m: (m, "parallelism"),
    "max_parallelism": lambda m: (m, "max_parallelism"),
    "generation": lambda m: (m, "generation"),
    "checkpoint": lambda m: (m, "checkpoint"),
    "slot": lambda m: (m["slots"][0], "slot"),
    "vertex": lambda m: (subtask(m), "vertex"),
    "index": lambda m: (subtask(m), "index"),
    "state rows": lambda m: (subtask(m)["states"][0], "rows"),
    "first key group": lambda m: (subtask(m)["states"][0], "key_group_first"),
    "last key group": lambda m: (subtask(m)["states"][0], "key_group_last"),
    "layer": lambda m: (subtask(m)["inflight"][0], "layer"),
    "edge": lambda m: (subtask(m)["inflight"][0], "edge"),
    "producer": lambda m: (subtask(m)["inflight"][0], "producer"),
    "consumer": lambda m: (subtask(m)["inflight"][0], "consumer"),
    "row_start": lambda m: (subtask(m)["inflight"][0], "row_start"),
    "rows in flight": lambda m: (subtask(m)["inflight"][0], "rows"),
    "group in flight": lambda m: (subtask(m)["inflight"][0], "key_group_last"),
    "offset": lambda m: (sections(m)[0], "offset"),
    "length": lambda m: (sections(m)[0], "length"),
    "blob": lambda m: (m["sources"][0]["state"]["segments"][0], "__blob__"),
    "source vertex": lambda m: (m["sources"][0], "vertex"),
    "plan vertex": lambda m: (m["plan"]["operators"]["count-1"], "vertex"),
    "plan edge": lambda m: (m["plan"]["edges"]["0"], "id"),
    "plan consumer": lambda m: (m["plan"]["edges"]["0"], "consumer"),
    "epoch": lambda m: (subtask(m)["inherited_messages"][0], "epoch"),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_a_number_that_cannot_be_is_refused(location: Path, scene: Scene, what: str) -> None:
    for number in HUGE:

        def change(metadata: Body, number: Any = number) -> None:
            message = {"epoch": 1, "index": 0, "message": ""}
            subtask(metadata)["inherited_messages"] = [message]
            holder, name = NUMBERS[what](metadata)
            holder[name] = number

        rewrite_metadata(location, NEWEST, change)
        if (what, number) != ("last key group", -1):  # no key group at all: that is one that can be
            assert read_everything(location, scene.graph, newest_only=True)


PATHS = [
    "/etc/passwd",
    "../outside",
    "data/../../outside",
    "query.json",
    "log/00000000000000000001.json",
    "",
    "\0",
    "é",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_section_lies_in_a_data_file(location: Path, scene: Scene, path: str) -> None:
    rewrite_metadata(location, NEWEST, lambda metadata: sections(metadata)[0].update(path=path))
    assert "no data file" in refusals(location, scene)


@pytest.mark.parametrize("path", [*PATHS, "snapshots/chk-2/metadata.json"])
def test_metadata_lies_where_it_belongs(location: Path, scene: Scene, path: str) -> None:
    for entry in log_entries(location):
        if completes(entry, NEWEST):
            reseal(entry, lambda body: body["entry"]["metadata"].update(path=path))
    assert "is not where chk-3 is described" in refusals(location, scene)


def test_a_split_names_no_file_outside(location: Path, scene: Scene) -> None:
    def change(metadata: Body) -> None:
        metadata["sources"][0]["pending"] = [{"split_id": "x", "spec": {"path": "lane/../../outside"}}]

    rewrite_metadata(location, NEWEST, change)
    assert "is not a clean relative path" in refusals(location, scene)


def test_a_kept_file_that_is_a_link_is_not_taken_along(location: Path, scene: Scene) -> None:
    (location.parent / "outside").write_text("secret")
    (location / KEPT).unlink()
    (location / KEPT).symlink_to(location.parent / "outside")
    with pytest.raises(LocationError, match="is a link"):
        export_snapshot(str(location), f"chk-{NEWEST}", location.parent / "portable")
    assert not (location.parent / "portable").exists()


def test_metadata_of_another_snapshot_does_not_pass_for_this_one(location: Path, scene: Scene) -> None:
    put_metadata(location, NEWEST, (location / "snapshots/chk-2/metadata.json").read_bytes())
    assert "belongs to chk-2 of Generation 1; the log has chk-3" in refusals(location, scene)


# -- the log ----------------------------------------------------------------------------------------------------------


def append(location: Path, entry: Body, seq: int = 0) -> None:
    number = seq or int(log_entries(location)[-1].stem) + 1
    path = location / "log" / f"{number:020d}.json"
    path.write_bytes(seal_envelope({"seq": number, "token": "t", "entry": entry}))


COMMITTED = {"type": "epoch-committed", "generation": 1, "epoch": 1, "reserved_until": 99}
SUMMARY = {"type": "summary (format version 2)", "generation": 1, "first_checkpoint": 1, "restored": 0, "next_batch": 0}
SUMMARY |= {"committed_epoch": 1, "reserved_until": 9, "snapshots": []}
ENTRIES: list[Body] = [
    {"type": "epoch-committed"},
    {**COMMITTED, "generation": 7},
    {**COMMITTED, "generation": -1},
    {**COMMITTED, "epoch": 1 << 70},
    {**COMMITTED, "reserved_until": -5},
    {**COMMITTED, "batches": {"sink-1": -1}},
    {"type": "generation-opened", "generation": 1, "restored": 0, "first_checkpoint": 1, "reserved_until": 9}
    | {"committed_epoch": 0},
    {"type": "unheard-of"},
    {"type": "summary", "generation": 1, "first_checkpoint": 1, "restored": 0, "committed_epoch": 1}
    | {"reserved_until": 9, "snapshots": [{"checkpoint": -1}]},
    {**SUMMARY, "next_batch": -1},
    {**SUMMARY, "next_batch": 1 << 60},
    {**SUMMARY, "planned": {"query_id": "q", "batch": -1}},
    {**SUMMARY, "counted": {"sink-1": "many"}},
]


@pytest.mark.parametrize("number", range(len(ENTRIES)))
def test_an_entry_that_contradicts_or_is_none_is_refused(location: Path, scene: Scene, number: int) -> None:
    append(location, ENTRIES[number])
    assert "log/" in refusals(location, scene)


def test_a_gap_of_any_size_costs_nothing(location: Path, scene: Scene) -> None:
    append(location, COMMITTED, seq=10_000_000)
    assert "is missing, though later log entries exist" in refusals(location, scene)
    for seq in range(20_000_000, 30_000_000, 1_000_000):
        append(location, COMMITTED, seq=seq)
    refusals(location, scene)
    append(location, COMMITTED, seq=10**19)
    assert "does not belong into a log" in refusals(location, scene)


def test_a_log_without_summaries_is_not_read_for_ever(
    location: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.snapshots.log.snapshot_log.UNSUMMARISED_AT_MOST", 20)
    for _ in range(30):
        append(location, COMMITTED)
    assert "no summary among its last" in refusals(location, scene)


# -- Arrow ------------------------------------------------------------------------------------------------------------


def compressed(batch: pa.RecordBatch, codec: str = "lz4") -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def forged_length(batch: pa.RecordBatch, said: int) -> bytes:
    """A compressed stream whose first compressed buffer says that it becomes so many bytes."""
    data = compressed(batch)
    real = max(len(buffer) for column in batch.columns for buffer in column.buffers() if buffer is not None)
    at = data.index(real.to_bytes(8, "little") + b"\x04\x22\x4d\x18")  # the frame's magic number follows
    return data[:at] + said.to_bytes(8, "little", signed=True) + data[at + 8 :]


def out_of_bounds() -> bytes:
    """Text whose offsets point far behind its bytes."""
    whole = stream_bytes(pa.record_batch({"s": ["x" * 77]}))
    offsets = (0).to_bytes(4, "little") + (77).to_bytes(4, "little")
    at = whole.rindex(offsets)
    return whole[:at] + (0).to_bytes(4, "little") + (1 << 30).to_bytes(4, "little") + whole[at + 8 :]


def nested(depth: int) -> bytes:
    """A stream of lists of lists."""
    kind = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return bytes(pa.schema([("deep", kind)]).serialize().to_pybytes()) + b"\xff\xff\xff\xff\0\0\0\0"


def streams() -> dict[str, bytes]:
    rows = pa.record_batch({"__key_group": pa.array([1] * 999, pa.int16()), "key": [7] * 999, "count": [1] * 999})
    nulls = pa.record_batch([pa.nulls((1 << 24) + 1)], ["n"])
    large = pa.record_batch({"x": pa.array([0] * (1 << 20))})
    return {
        "cannot be read": b"ARROW" * 9,
        "cannot be read: ": b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\0" * 99,
        "cannot be read: Inv": nested(3000),
        "something else than lz4": compressed(large, "zstd"),
        "bytes become 1099511627776": forged_length(rows, 1 << 40),
        "become -5 when": forged_length(rows, -5),
        "message of the kind dictionary": stream_bytes(
            pa.record_batch({"d": pa.array(["a"] * 99).dictionary_encode()})
        ),
        "bytes are 16777217 rows": stream_bytes(nulls),
        "cannot be read:  *": out_of_bounds(),
        "rows without __key_group|are referred to": stream_bytes(pa.record_batch({"x": [1]})),
    }


@pytest.mark.one_in(3)
@pytest.mark.parametrize("match", streams())
def test_a_section_that_is_not_what_it_should_be(
    location: Path, scene: Scene, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = streams()[match]
    for number in (0, -1):  # of state, and of rows in flight

        def change(metadata: Body, number: int = number) -> None:
            replace_section(location, sections(metadata)[number], data)

        rewrite_metadata(location, NEWEST, change)
        text = refusals(location, scene)
        assert re.search(match, text)


def test_what_becomes_too_much_is_refused_before_it_is_decompressed(
    location: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.snapshots.format.arrow_streams.MAX_DECOMPRESSED_BYTES", 1 << 16)
    zeros = pa.record_batch({"x": pa.array([0] * (1 << 14))})
    rewrite_metadata(
        location, NEWEST, lambda metadata: replace_section(location, sections(metadata)[0], compressed(zeros))
    )
    assert "more than 65536 bytes once decompressed" in refusals(location, scene)


def test_key_groups_and_tombstones_are_what_they_should_be(location: Path, scene: Scene) -> None:
    schema = [("__key_group", pa.int16()), ("key", pa.int64()), ("count", pa.int64())]
    nothing = pa.record_batch([[None], [1], [1]], schema=pa.schema(schema))
    unmarked = pa.record_batch([[1], [1], [1], [None]], schema=pa.schema([*schema, ("__deleted", pa.bool_())]))
    for batch, kind, text in (
        (nothing, "base", "rows of no key group"),
        (unmarked, "delta", "a delta without __deleted"),
    ):

        def change(metadata: Body, batch: pa.RecordBatch = batch, kind: str = kind) -> None:
            for entry in subtask(metadata)["states"]:
                entry.update(kind=kind, rows=1)
                replace_section(location, entry["section"], stream_bytes(batch))

        rewrite_metadata(location, NEWEST, change)
        assert text in refusals(location, scene)


# -- code -------------------------------------------------------------------------------------------------------------


def test_nothing_is_unpickled(location: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")

    for module in (pickle, cloudpickle):
        for name in ("loads", "load"):
            monkeypatch.setattr(module, name, never)
    monkeypatch.setattr(pickle, "Unpickler", never)
    assert read_everything(location, scene.graph) == []
    export_snapshot(str(location), f"chk-{NEWEST}", location.parent / "portable")
    convert_snapshot(location.parent / "portable", location.parent / "back")
    assert read_everything(location.parent / "back", scene.graph) == []


def test_the_error_names_the_location(location: Path) -> None:
    (location / "query.json").write_bytes(b"[" * 10_000)
    with pytest.raises(PenstockError, match=str(location)):
        open_location_to_read(str(location))
    assert json.loads((location / METADATA).read_bytes())
