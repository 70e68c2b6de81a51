"""Sections and captures: what is written is what is read, and nothing damaged is ever read silently."""

from __future__ import annotations

import errno
import re

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointFailed, CorruptSnapshot
from penstock.model.elements import Side
from penstock.model.ids import ChannelId
from penstock.model.manifest import InflightEntry, SectionRef
from penstock.model.splits import Split
from penstock.operators.base import OperatorState
from penstock.snapshots.format.sections import SectionWriter, check_reference, read_content, read_section
from penstock.snapshots.restoring.restore import load_inflight, load_restore
from penstock.snapshots.store.store import Effect, LocalStore, MemoryStore
from penstock.state.hashing import key_groups
from penstock.state.stored_form import BatchCapture
from tests.support.effort import some
from tests.support.snapshots.snapshot_kit import COUNT, ROWS, capture, captured, graph, rows, state, write_captures

CHANNEL = ChannelId(0, 1, 0)


def write(store: MemoryStore, compression: str | None = None) -> list[SectionRef]:
    with SectionWriter(store, "data/1-1-0.arrows", compression) as writer:
        first = writer.append("one", ROWS, [(rows(1, 2), {"buffer": "x"}), (rows(3), None)])
        second = writer.append("two", ROWS, [(rows(7, 8, 9).slice(1, 1), None)])
        return [first, second]


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_sections_follow_each_other_in_one_file(compression: str | None) -> None:
    store = MemoryStore()
    first, second = write(store, compression)
    assert (first.offset, second.offset) == (0, first.length)
    assert len(store.files["data/1-1-0.arrows"]) == first.length + second.length
    content = read_content(store, first)
    assert content.batches == [rows(1, 2), rows(3)]
    assert content.metadata == [{"buffer": "x"}, {}]
    assert read_section(store, second) == [rows(8)], "only the slice's rows were written"


def test_a_big_parent_is_not_written_for_a_small_slice() -> None:
    store = MemoryStore()
    with SectionWriter(store, "data/x") as writer:
        ref = writer.append("i", ROWS, [(rows(*range(100_000)).slice(500, 3), None)])
    assert ref.length < 2000


@settings(max_examples=some(60), deadline=None)
@given(st.data())
def test_every_flipped_or_torn_byte_is_found_and_named(data: st.DataObject) -> None:
    store = MemoryStore()
    refs = write(store)
    whole = store.files["data/1-1-0.arrows"]
    position = data.draw(st.integers(0, len(whole) - 1))
    torn = data.draw(st.booleans())
    damaged = bytearray(whole)
    if torn:
        del damaged[position:]
    else:
        damaged[position] ^= data.draw(st.integers(1, 255))
    store.files["data/1-1-0.arrows"] = bytes(damaged)
    for ref in refs:
        hit = ref.offset + ref.length > position and (torn or position >= ref.offset)
        if not hit:
            assert read_section(store, ref)
            continue
        with pytest.raises(CorruptSnapshot) as caught:
            read_section(store, ref)
        text = str(caught.value)
        assert "data/1-1-0.arrows" in text
        assert f"offset {ref.offset}" in text
        assert repr(ref.identity) in text


def test_an_intact_section_in_the_wrong_place_is_found_by_its_identity() -> None:
    store = MemoryStore()
    first, _ = write(store)
    with pytest.raises(CorruptSnapshot, match="checksum"):
        read_section(store, msgspec.structs.replace(first, identity="other"))


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", "data/../query.json", "data/none"])
def test_references_that_lead_elsewhere_or_nowhere_are_refused(path: str) -> None:
    store = MemoryStore()
    ref = msgspec.structs.replace(write(store)[0], path=path)
    for look in (read_section, check_reference):
        with pytest.raises(CorruptSnapshot, match=re.escape(path)):
            look(store, ref)


def test_references_beyond_the_file_are_refused() -> None:
    store = MemoryStore()
    first, second = write(store)
    check_reference(store, second)
    for ref in (
        msgspec.structs.replace(second, length=second.length + 1),
        msgspec.structs.replace(first, offset=-1),
        msgspec.structs.replace(first, length=-5),
    ):
        with pytest.raises(CorruptSnapshot):
            check_reference(store, ref)
        with pytest.raises(CorruptSnapshot):
            read_section(store, ref)


@pytest.mark.parametrize("operation", ["create", "write", "close"])
def test_a_full_disk_fails_the_checkpoint_names_the_file_and_leaves_nothing(operation: str) -> None:
    store = MemoryStore()
    calls = 0

    def full(effect: Effect) -> None:
        nonlocal calls
        if effect.operation == operation and effect.phase == "before":
            calls += 1
            if calls == 3 or operation != "write":
                raise OSError(errno.ENOSPC, "No space left on device")

    store.hook = full
    captures = [capture(0, 0), capture(1, 0, operators={COUNT: OperatorState({"counts": BatchCapture(state(1, 2))})})]
    with pytest.raises(CheckpointFailed, match=r"data/3-1-0-state\.arrows.*No space left"):
        write_captures(store, graph(), 3, 0, captures)
    assert store.files == {}


def test_a_failure_of_the_caller_leaves_no_file() -> None:
    store = MemoryStore()
    bad = pa.record_batch({"x": [1]})
    with pytest.raises(ValueError, match="__key_group"):
        write_captures(
            store, graph(), 1, 0, [capture(1, 0, operators={COUNT: OperatorState({"t": BatchCapture(bad)})})]
        )
    assert store.files == {}


def test_a_capture_comes_back_whole(tmp_path: object) -> None:
    store = LocalStore(str(tmp_path))
    buffer = rows(*range(10))
    operators = {
        COUNT: OperatorState({"counts": BatchCapture(state(3, 5, 9))}, {"watermark": 12}),
        "op-2": OperatorState({}, {"a": [1]}),
    }
    original = capture(
        1,
        0,
        operators=operators,
        inflight=[
            captured(CHANNEL, Side.CONSUMER, 5, rows(20, 21)),
            captured(CHANNEL, Side.CONSUMER, 4, buffer, offset=6, count=3),
            captured(ChannelId(0, 0, 0), Side.CONSUMER, 1, rows(30)),
        ],
        splits=[Split("s1", {"path": "a"}, {"row": 4})],
        messages={3: b"\x00\xff", 4: b""},
        watermarks={CHANNEL: 99, ChannelId(0, 0, 0): -1},
    )
    slot = write_captures(store, graph(), 1, 0, [original, capture(0, 0)])
    slot = msgspec.json.decode(msgspec.json.encode(slot), type=type(slot))
    assert [subtask.vertex for subtask in slot.subtasks] == [0, 1]
    manifest = slot.subtasks[1]
    restored = load_restore(manifest, store)
    assert restored.operators[COUNT].rows("counts") == [state(3, 5, 9)]
    assert restored.operators[COUNT].scalars == {"watermark": 12}
    assert restored.operators["op-2"].scalars == {"a": [1]}
    assert restored.splits == original.splits
    assert restored.channel_watermarks == original.channel_watermarks
    assert restored.pending_messages == original.pending_messages
    assert restored.rows_in == 17
    (entry_state,) = manifest.states
    assert (entry_state.key_group_first, entry_state.key_group_last, entry_state.rows) == (3, 9, 3)
    other, mine = restored.inflight
    assert (other.producer, other.rows) == (0, 1)
    assert (mine.producer, mine.rows, mine.side, mine.layer) == (1, 5, "consumer", 0)
    groups = key_groups(rows(6, 7, 8, 20, 21), (0,), 128)
    assert (mine.key_group_first, mine.key_group_last) == (groups.min(), groups.max())
    assert load_inflight(store, mine) == [rows(6, 7, 8), rows(20, 21)], "by buffer sequence, captured rows only"
    assert read_content(store, mine.section).metadata == [
        {"buffer": "g1/e0:1->0#4", "offset": "6"},
        {"buffer": "g1/e0:1->0#5", "offset": "0"},
    ]
    metrics = slot.metrics[1]
    assert metrics.inflight_rows == 6
    assert metrics.inflight_bytes == rows(20, 21).nbytes + buffer.nbytes * 3 // 10 + rows(30).nbytes
    assert metrics.inflight_persisted_bytes == mine.section.length + other.section.length
    assert metrics.state_bytes == entry_state.section.length


def test_empty_state_keeps_its_schema_and_nothing_makes_no_file() -> None:
    store = MemoryStore()
    slot = write_captures(
        store, graph(), 1, 0, [capture(1, 0, operators={COUNT: OperatorState({"counts": BatchCapture(state())})})]
    )
    assert load_restore(slot.subtasks[0], store).operators[COUNT].rows("counts") == []
    assert write_captures(MemoryStore(), graph(), 1, 0, [capture(0, 0), capture(1, 0)]).slot == 0
    empty = MemoryStore()
    write_captures(empty, graph(), 1, 0, [capture(0, 0), capture(1, 0)])
    assert empty.files == {}


def test_carried_entries_are_referenced_again_and_come_first() -> None:
    store = MemoryStore()
    first = write_captures(
        store, graph(), 1, 0, [capture(1, 0, inflight=[captured(CHANNEL, Side.CONSUMER, 1, rows(1, 2, 3))])]
    )
    (entry,) = first.subtasks[0].inflight
    narrowed = msgspec.structs.replace(entry, row_start=1, rows=2)
    new = captured(CHANNEL, Side.CONSUMER, 1, rows(9), layer=1, generation=2)
    second = write_captures(store, graph(), 2, 0, [capture(1, 0, 2, carried=[narrowed], inflight=[new])])
    carried, fresh = second.subtasks[0].inflight
    assert carried == narrowed
    assert load_inflight(store, carried) == [rows(2, 3)]
    assert (fresh.layer, fresh.section.path) == (1, "data/2-2-0.arrows")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
@settings(max_examples=some(60), deadline=None)
def test_any_row_range_of_an_entry_can_be_read(sizes: list[int], data: st.DataObject) -> None:
    store = MemoryStore()
    keys = iter(range(1000))
    batches = [rows(*(next(keys) for _ in range(size))) for size in sizes]
    with SectionWriter(store, "data/x") as writer:
        ref = writer.append("i", ROWS, [(batch, None) for batch in batches])
    start = data.draw(st.integers(0, sum(sizes)))
    count = data.draw(st.integers(0, sum(sizes) - start))
    entry = InflightEntry(0, 0, 0, 0, "consumer", start, count, 0, 127, ref)
    loaded = load_inflight(store, entry)
    assert all(batch.num_rows for batch in loaded)
    assert [key for batch in loaded for key in batch.column(0).to_pylist()] == list(range(start, start + count))
    with pytest.raises(CorruptSnapshot, match="rows"):
        load_inflight(store, msgspec.structs.replace(entry, rows=sum(sizes) - start + 1))


def test_rows_in_flight_are_read_as_the_edge_is_now() -> None:
    store = MemoryStore()
    with SectionWriter(store, "data/x") as writer:
        ref = writer.append("i", ROWS, [(rows(1, 2, 3), None)])
    entry = InflightEntry(0, 0, 0, 0, "consumer", 1, 2, 0, 127, ref)
    for names in (["key", "value"], ["value", "key"], ["key"], []):
        schema = pa.schema([ROWS.field(name) for name in names])
        [batch] = load_inflight(store, entry, schema)
        assert batch.schema.names == names
        assert batch.num_rows == 2
        assert "key" not in names or batch.column("key").to_pylist() == [2, 3]


def test_a_state_entry_that_lies_about_its_rows_or_kind_is_refused() -> None:
    store = MemoryStore()
    slot = write_captures(
        store, graph(), 1, 0, [capture(1, 0, operators={COUNT: OperatorState({"counts": BatchCapture(state(1))})})]
    )
    manifest = slot.subtasks[0]
    (entry,) = manifest.states
    for changes, problem in (({"rows": 2}, "1 rows instead of 2"), ({"kind": "other"}, "unknown kind")):
        bad = msgspec.structs.replace(manifest, states=[msgspec.structs.replace(entry, **changes)])
        with pytest.raises(CorruptSnapshot, match=problem):
            load_restore(bad, store).operators[COUNT].rows("counts")


def test_several_sections_of_one_table_are_read_one_after_the_other() -> None:
    store = MemoryStore()
    entries = []
    for slot, groups in enumerate(((1, 5), (0, 5, 7))):
        part = capture(1, slot, operators={COUNT: OperatorState({"counts": BatchCapture(state(*groups))})})
        entries += write_captures(store, graph(), 1, slot, [part]).subtasks[0].states
    manifest = write_captures(store, graph(), 1, 9, [capture(1, 0)]).subtasks[0]
    restored = load_restore(msgspec.structs.replace(manifest, states=entries), store).operators[COUNT]
    assert restored.rows("counts") == [state(1, 5), state(0, 5, 7)]
