"""Parts in any order become one restore order; what the base holds is referred to; failures leave nothing."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointFailed, ProtocolViolation
from penstock.model.elements import Buffer, Captured, Side
from penstock.model.ids import BufferId, ChannelId, SubtaskId
from penstock.model.job_graph import Edge, EdgeKind
from penstock.model.manifest import InflightEntry, SectionRef, SlotManifest
from penstock.operators.base import OperatorState
from penstock.snapshots.format.sections import data_path
from penstock.snapshots.restoring.restore import load_inflight
from penstock.snapshots.store.store import Effect, LocalStore, MemoryStore, Store
from penstock.snapshots.writing import checkpoint_writer
from penstock.snapshots.writing.base_index import MAX_INDEXES, NO_BASE, BaseIndex, BaseIndexes
from penstock.snapshots.writing.capture_queue import RecordedRows
from penstock.snapshots.writing.checkpoint_writer import CheckpointWriter, key_groups_among
from penstock.snapshots.writing.inflight_index import MAX_FILES, DurableRange, InflightIndex, NewRange
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.state.hashing import key_groups
from penstock.state.stored_form import BatchCapture
from tests.support.effort import some
from tests.support.snapshots.snapshot_kit import COUNT, ROWS, capture, captured, graph, rows, state

CHANNELS = [ChannelId(0, 0, 0), ChannelId(0, 1, 0), ChannelId(0, 0, 1)]
ONE = SubtaskId(1, 0)
SMALL_SECTION = 4 * rows(1).nbytes


def writer(store: Store, checkpoint: int = 1, base: BaseIndex = NO_BASE) -> CheckpointWriter:
    return CheckpointWriter(store, graph(), 1, checkpoint, 0, base)


def keys(store: Store, entries: Sequence[InflightEntry]) -> list[int]:
    return [key for entry in entries for batch in load_inflight(store, entry) for key in batch.column(0).to_pylist()]


def file_of(checkpoint: int) -> str:
    return data_path(1, checkpoint, 0)


# -- restore order over parts ---------------------------------------------------------------------------------------


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[list[Captured]], dict[tuple[int, str, ChannelId], list[int]]]:
    """Parts to hand over, and for each layer, side and channel the keys in restore order."""
    numbers = itertools.count()
    expected: dict[tuple[int, str, ChannelId], list[int]] = {}
    all_of_them: list[Captured] = []
    for layer, side, channel in itertools.product((1, 2), (Side.CONSUMER, Side.PRODUCER), CHANNELS):
        first = 100 * layer + (50 if side is Side.PRODUCER else 0)
        for seq in range(first, first + draw(st.integers(0, 4))):
            batch = rows(*itertools.islice(numbers, draw(st.integers(1, 7))))
            cuts = sorted({0, batch.num_rows, draw(st.integers(0, batch.num_rows))})
            for start, end in itertools.pairwise(cuts):
                all_of_them.append(captured(channel, side, seq, batch, start, end - start, layer=layer))
            expected.setdefault((layer, side.value, channel), []).extend(batch.column(0).to_pylist())
    shuffled = draw(st.permutations(all_of_them))
    bounds = sorted(draw(st.lists(st.integers(0, len(shuffled)), max_size=6)))
    parts = [shuffled[a:b] for a, b in itertools.pairwise([0, *bounds, len(shuffled)])]
    return parts, expected


@settings(max_examples=some(80), deadline=None)
@given(recordings())
def test_restore_order_is_the_rule_of_captured_over_all_parts(
    recording: tuple[list[list[Captured]], dict[tuple[int, str, ChannelId], list[int]]],
) -> None:
    parts, expected = recording
    store = MemoryStore()
    written = writer(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_writer, "INFLIGHT_SECTION_BYTES", SMALL_SECTION)
        for part in parts[:-1]:
            written.add_inflight(ONE, part)
        written.add_capture(capture(1, 0, inflight=parts[-1]))
    manifest = written.finish()
    entries = manifest.subtasks[0].inflight
    lanes = [(e.layer, e.side, ChannelId(e.edge, e.producer, e.consumer)) for e in entries]
    assert lanes == sorted(lanes), "layer, consumer side first, channel"
    found = {lane: keys(store, [e for e, of in zip(entries, lanes, strict=True) if of == lane]) for lane in lanes}
    assert found == expected
    metrics = manifest.metrics[0]
    assert metrics.inflight_rows == sum(map(len, expected.values()))
    assert metrics.inflight_persisted_bytes == len(store.files.get(file_of(1), b""))


def test_a_section_holds_so_many_bytes_or_one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "INFLIGHT_SECTION_BYTES", SMALL_SECTION)
    store = MemoryStore()
    written = writer(store)
    sizes = [1, 1, 1, 1, 1, 9, 1]
    numbers = itertools.count()
    buffers = [rows(*itertools.islice(numbers, size)) for size in sizes]
    written.add_capture(
        capture(1, 0, inflight=[captured(CHANNELS[0], Side.CONSUMER, i, b) for i, b in enumerate(buffers)])
    )
    entries = written.finish().subtasks[0].inflight
    assert [entry.rows for entry in entries] == [4, 1, 9, 1], "four small ones fit; a large one travels alone"
    assert len({entry.section.identity for entry in entries}) == 4
    assert keys(store, entries) == list(range(15))


def test_a_buffer_cut_in_two_by_parts_comes_back_in_order() -> None:
    store, batch = MemoryStore(), rows(*range(6))
    written = writer(store)
    written.add_inflight(ONE, [captured(CHANNELS[0], Side.CONSUMER, 1, batch, 3, 3)])
    written.add_inflight(ONE, [captured(CHANNELS[0], Side.CONSUMER, 1, batch, 1, 2)])
    written.add_capture(capture(1, 0, inflight=[captured(CHANNELS[0], Side.CONSUMER, 2, rows(9))]))
    assert keys(store, written.finish().subtasks[0].inflight) == [1, 2, 3, 4, 5, 9]


def test_what_is_carried_stays_before_what_is_recorded() -> None:
    store = MemoryStore()
    first = writer(store)
    first.add_capture(capture(1, 0, inflight=[captured(CHANNELS[0], Side.CONSUMER, 1, rows(1, 2))]))
    carried = first.finish().subtasks[0].inflight
    second = writer(store, 2)
    second.add_inflight(ONE, [captured(CHANNELS[0], Side.CONSUMER, 9, rows(5), layer=2)])
    second.add_capture(capture(1, 0, 2, carried=carried))
    assert keys(store, second.finish().subtasks[0].inflight) == [1, 2, 5]


def test_rows_captured_twice_are_a_violation() -> None:
    batch = rows(*range(6))
    for again in (
        captured(CHANNELS[0], Side.CONSUMER, 1, batch, 3, 1),
        captured(CHANNELS[0], Side.PRODUCER, 1, batch, 0, 6),
    ):
        written = writer(MemoryStore())
        written.add_inflight(ONE, [captured(CHANNELS[0], Side.CONSUMER, 1, batch, 2, 3)])
        written.add_capture(capture(1, 0, inflight=[again]))
        with pytest.raises(ProtocolViolation, match="captured again"):
            written.finish()


def test_a_subtask_that_recorded_and_was_not_captured_is_a_violation() -> None:
    written = writer(MemoryStore())
    written.add_inflight(ONE, [captured(CHANNELS[0], Side.CONSUMER, 1, rows(1))])
    written.add_capture(capture(0, 0))
    with pytest.raises(ProtocolViolation, match=r"v1\[0\] not captured"):
        written.finish()


def test_rows_and_state_are_let_go_of_once_they_are_written() -> None:
    store = MemoryStore()
    written = writer(store)
    batch, table = rows(*range(100)), state(1, 2, 3)
    known = [weakref.ref(batch), weakref.ref(table)]
    written.add_inflight(ONE, [captured(CHANNELS[0], Side.CONSUMER, 1, batch)])
    written.add_capture(capture(1, 0, operators={COUNT: OperatorState({"counts": BatchCapture(table)}, {"a": 1})}))
    del batch, table
    gc.collect()
    assert [ref() for ref in known] == [None, None]
    manifest = written.finish().subtasks[0]
    assert manifest.scalars == {COUNT: {"a": 1}}
    assert manifest.states[0].rows == 3


# -- incremental ----------------------------------------------------------------------------------------------------


class Queue:
    """One channel as its consumer sees it: buffers, the first of them read in part."""

    def __init__(self, channel: ChannelId, numbers: itertools.count[int]) -> None:
        self.channel = channel
        self.buffers: list[Buffer] = []
        self.offset = 0
        self._numbers = numbers
        self._seq = itertools.count()

    def arrive(self, size: int) -> None:
        batch = rows(*itertools.islice(self._numbers, size))
        self.buffers.append(Buffer(BufferId(1, self.channel, next(self._seq)), batch, batch.nbytes))

    def consume(self, count: int) -> None:
        while self.buffers and count:
            taken = min(count, self.buffers[0].rows - self.offset)
            self.offset, count = self.offset + taken, count - taken
            if self.offset == self.buffers[0].rows:
                self.buffers.pop(0)
                self.offset = 0

    def capture(self) -> list[Captured]:
        return [
            Captured(self.channel, Side.CONSUMER, 1, b, self.offset * (i == 0), b.rows - self.offset * (i == 0))
            for i, b in enumerate(self.buffers)
        ]

    def unread(self) -> list[int]:
        return [k for c in self.capture() for k in c.buffer.payload.slice(c.offset, c.rows).column(0).to_pylist()]  # type: ignore[attr-defined]


@settings(max_examples=some(60), deadline=None)
@given(st.data())
def test_every_checkpoint_holds_its_queues_and_writes_only_what_its_base_does_not_hold(data: st.DataObject) -> None:
    store, numbers = MemoryStore(), itertools.count()
    queues = [Queue(channel, numbers) for channel in CHANNELS[:2]]
    slot = SlotWriter(store, graph(), 1, 0)
    complete: dict[int, set[int]] = {}
    held: dict[int, tuple[SlotManifest, dict[ChannelId, list[int]]]] = {}
    for checkpoint in range(1, data.draw(st.integers(2, 8), "checkpoints") + 1):
        for queue in queues:
            queue.consume(data.draw(st.integers(0, 12)))
            for size in data.draw(st.lists(st.integers(1, 5), max_size=4)):
                queue.arrive(size)
        base = max(complete, default=0)
        late = data.draw(st.booleans(), "trigger comes late")
        if not late:
            slot.begin(checkpoint, base)
        everything = data.draw(st.permutations([c for queue in queues for c in queue.capture()]))
        middle = data.draw(st.integers(0, len(everything)))
        slot.write(RecordedRows(ONE, checkpoint, everything[:middle]))
        if late:
            slot.begin(checkpoint, base)
        assert not slot.write(capture(0, 0, checkpoint))
        assert slot.write(capture(1, 0, checkpoint, inflight=everything[middle:]))
        fate = data.draw(st.sampled_from(["complete", "complete", "aborted late", "aborted"]), "fate")
        manifest = slot.finish(checkpoint)
        if fate == "aborted":
            slot.abandon(checkpoint)
            assert file_of(checkpoint) not in store.files
            continue
        slot.confirm(checkpoint)
        if fate == "aborted late":
            slot.abandon(checkpoint)
            store.files.pop(file_of(checkpoint), None)  # as the collector does
            continue
        held[checkpoint] = (manifest, {queue.channel: queue.unread() for queue in queues})
        entries = manifest.subtasks[1].inflight
        own = [entry for entry in entries if entry.section.path == file_of(checkpoint)]
        if not late:
            assert set(keys(store, own)) == {k for q in queues for k in q.unread()} - complete.get(base, set())
        complete[checkpoint] = {key for queue in queues for key in queue.unread()}
    for manifest, expected in held.values():
        for channel, wanted in expected.items():
            assert keys(store, [e for e in manifest.subtasks[1].inflight if e.producer == channel.producer]) == wanted


def take(slot: SlotWriter, checkpoint: int, base: int, inflight: list[Captured]) -> SlotManifest:
    """A whole checkpoint of the slot."""
    slot.begin(checkpoint, base)
    slot.write(capture(0, 0, checkpoint))
    assert slot.write(capture(1, 0, checkpoint, inflight=inflight))
    manifest = slot.finish(checkpoint)
    slot.confirm(checkpoint)
    return manifest


def test_the_second_checkpoint_of_a_stuck_queue_writes_nothing() -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(), 1, 0)
    stuck = [captured(CHANNELS[0], Side.CONSUMER, seq, rows(*range(50))) for seq in range(20)]
    first, second = take(slot, 1, 0, stuck), take(slot, 2, 1, stuck)
    assert list(store.files) == [file_of(1)]
    assert second.subtasks[1].inflight == first.subtasks[1].inflight
    (_, before), (_, after) = first.metrics, second.metrics
    assert before.inflight_persisted_bytes == len(store.files[file_of(1)])
    assert after.inflight_persisted_bytes == 0
    assert after.inflight_bytes == before.inflight_bytes == 20 * rows(*range(50)).nbytes
    assert after.inflight_rows == before.inflight_rows == 1000


def test_a_partly_read_queue_is_one_narrower_reference() -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(), 1, 0)
    buffers = [rows(*range(i, i + 10)) for i in range(0, 50, 10)]
    queue = [captured(CHANNELS[0], Side.CONSUMER, seq, batch) for seq, batch in enumerate(buffers)]
    take(slot, 1, 0, queue)
    left = [captured(CHANNELS[0], Side.CONSUMER, 1, buffers[1], offset=4), *queue[2:]]
    new = captured(CHANNELS[0], Side.CONSUMER, 5, rows(50))
    entries = take(slot, 2, 1, [*left, new]).subtasks[1].inflight
    assert [(e.section.path, e.row_start, e.rows) for e in entries] == [(file_of(1), 14, 36), (file_of(2), 0, 1)]
    # A reference to what was only referred to, on the other side of the channel, in the same slot.
    moved = [Captured(c.channel, Side.PRODUCER, 0, c.buffer, c.offset, c.rows) for c in [left[-1], new]]
    third = take(slot, 3, 2, moved).subtasks[1].inflight
    assert [(e.section.path, e.row_start, e.rows, e.side) for e in third] == [
        (file_of(1), 40, 10, "producer"), (file_of(2), 0, 1, "producer"),
    ]  # fmt: skip
    assert keys(store, third) == [*range(40, 51)]


def test_rows_with_a_gap_between_them_are_two_references() -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(), 1, 0)
    queue = [captured(CHANNELS[0], Side.CONSUMER, seq, rows(10 + seq, 20 + seq)) for seq in range(3)]
    take(slot, 1, 0, queue)
    entries = take(slot, 2, 1, [queue[0], queue[2]]).subtasks[1].inflight
    assert [(e.row_start, e.rows) for e in entries] == [(0, 2), (4, 2)]
    assert keys(store, entries) == [10, 20, 12, 22]


def test_a_base_that_was_aborted_is_never_referred_to() -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(), 1, 0)
    stuck = [captured(CHANNELS[0], Side.CONSUMER, 1, rows(1, 2, 3))]
    take(slot, 1, 0, stuck)
    slot.abandon(1)
    for checkpoint, base in ((2, 1), (3, 0), (4, 77)):
        entries = take(slot, checkpoint, base, stuck).subtasks[1].inflight
        assert [entry.section.path for entry in entries] == [file_of(checkpoint)]


def test_only_the_base_of_the_checkpoint_itself_is_referred_to() -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(), 1, 0)
    one, two = (captured(CHANNELS[0], Side.CONSUMER, seq, rows(seq)) for seq in (1, 2))
    take(slot, 1, 0, [one])
    take(slot, 2, 1, [one, two])
    slot.begin(4, 2)  # forgets what is older than 2, which a checkpoint in flight may still use
    entries = take(slot, 3, 2, [one, two]).subtasks[1].inflight
    assert [entry.section.path for entry in entries] == [file_of(1), file_of(2)]
    assert [e.section.path for e in take(slot, 5, 1, [one]).subtasks[1].inflight] == [file_of(5)]


def test_bases_that_nobody_uses_are_forgotten_and_their_number_is_bounded() -> None:
    indexes = BaseIndexes()
    for checkpoint in range(1, 10):
        indexes.add(checkpoint, BaseIndex())
    assert indexes.for_base(3) is not NO_BASE
    indexes.drop_older_than(7)
    assert len(indexes) == 3
    assert indexes.for_base(3) is NO_BASE
    for checkpoint in range(100, 200):
        indexes.add(checkpoint, BaseIndex())
    assert len(indexes) == MAX_INDEXES + 1
    assert indexes.for_base(199) is not NO_BASE
    assert indexes.for_base(7) is not NO_BASE, "it may be the base of any number of checkpoints that fail"


def piece(seq: int, offset: int, count: int, path: str = "data/x", row_start: int = 0) -> DurableRange:
    section = SectionRef(path, 0, 100, "i", "c")
    return DurableRange(BufferId(1, CHANNELS[0], seq), offset, count, count * 10, section, row_start, (0, 127))


@given(st.lists(st.lists(st.integers(0, 500), min_size=1, max_size=30), min_size=1, max_size=4), st.integers(1, 3))
def test_the_key_groups_of_rows_are_the_first_and_the_last_that_they_have(
    batches: list[list[int]], hashed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_writer, "HASHED_ROWS", hashed)
        found = key_groups_among(graph(1), ChannelId(0, 0, 0), [rows(*keys) for keys in batches])
    groups = np.concatenate([key_groups(rows(*keys), (0,), 128) for keys in batches])
    assert found == (groups.min(), groups.max())


@pytest.mark.parametrize(
    ("kind", "keys", "expected"),
    [
        (EdgeKind.REBALANCE, (), (0, 127)),
        (EdgeKind.FORWARD, (), (0, 127)),
        (EdgeKind.BROADCAST, (), (0, 127)),
        (EdgeKind.BROADCAST, (0,), (64, 127)),
    ],
)
def test_rows_without_keys_and_copies_count_for_all_key_groups_that_can_be(
    kind: EdgeKind, keys: tuple[int, ...], expected: tuple[int, int]
) -> None:
    job = replace(graph(2), edges=(Edge(0, 0, 1, kind, ROWS, keys),))
    assert key_groups_among(job, ChannelId(0, 0, 1), [rows(1)]) == expected


def test_rows_that_the_base_holds_keep_their_key_groups() -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(1), 1, 0)
    waiting = captured(ChannelId(0, 0, 0), Side.CONSUMER, 1, rows(3, 3, 3))
    (first,) = take(slot, 1, 0, [waiting]).subtasks[1].inflight
    (rest,) = take(slot, 2, 1, [replace(waiting, offset=1, rows=2)]).subtasks[1].inflight
    (group,) = set(key_groups(rows(3), (0,), 128).tolist())
    assert rest.section == first.section
    assert {(e.key_group_first, e.key_group_last) for e in (first, rest)} == {(group, group)}


def test_a_buffer_that_the_base_holds_in_places_is_cut_there() -> None:
    index = InflightIndex([piece(1, 6, 2, row_start=40), piece(1, 2, 3, row_start=7), piece(2, 0, 9)])
    wanted = captured(CHANNELS[0], Side.CONSUMER, 1, rows(*range(10)), offset=3)
    found = list(index.split(wanted))
    assert found == [
        piece(1, 3, 2, row_start=8),
        NewRange(wanted, 5, 1),
        piece(1, 6, 2, row_start=40),
        NewRange(wanted, 8, 2),
    ]
    assert [part.cost for part in found] == [20, wanted.buffer.cost // 10, 20, wanted.buffer.cost // 5]


def test_only_the_fullest_files_are_referred_to() -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(), 1, 0)
    waiting: list[Captured] = []
    count = MAX_FILES + 3
    for checkpoint in range(1, count + 1):
        size = 40 if checkpoint == 1 else 1
        waiting.append(captured(CHANNELS[0], Side.CONSUMER, checkpoint, rows(*range(size))))
        entries = take(slot, checkpoint, checkpoint - 1, waiting).subtasks[1].inflight
        files = dict.fromkeys(entry.section.path for entry in entries)
        assert len(files) <= MAX_FILES + 1
        assert file_of(1) in files, "the one that holds most is not written again"
        assert len(keys(store, entries)) == 39 + checkpoint


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "phase", "nth"),
    [
        ("create", "before", 1),
        ("create", "after", 1),
        ("write", "before", 1),
        ("write", "before", 4),
        ("close", "before", 1),
    ],
)
def test_a_store_that_fails_fails_this_checkpoint_only_and_leaves_nothing(operation: str, phase: str, nth: int) -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(), 1, 0)
    stuck = [captured(CHANNELS[0], Side.CONSUMER, seq, rows(seq)) for seq in range(3)]
    take(slot, 1, 0, stuck)
    calls = itertools.count(1)

    def fail(effect: Effect) -> None:
        if (effect.operation, effect.phase) == (operation, phase) and next(calls) >= nth:
            raise OSError(errno.ENOSPC, "No space left on device")

    store.hook = fail
    more = [*stuck, captured(CHANNELS[0], Side.CONSUMER, 3, rows(3))]
    with pytest.raises(CheckpointFailed, match=r"data/1-2-0\.arrows.*No space left"):
        take(slot, 2, 1, more)
    slot.abandon(2)
    assert list(store.files) == [file_of(1)]
    store.hook = None
    entries = take(slot, 3, 1, more).subtasks[1].inflight
    assert [entry.section.path for entry in entries] == [file_of(1), file_of(3)]
    assert keys(store, entries) == [0, 1, 2, 3]


@pytest.mark.parametrize("durable", [False, True])
def test_an_abandoned_file_is_removed_even_a_durable_one(tmp_path: Path, durable: bool) -> None:
    store = LocalStore(tmp_path)
    written = writer(store)
    written.add_inflight(ONE, [captured(CHANNELS[0], Side.CONSUMER, 1, rows(1))])
    assert store.list("data") == [file_of(1)], "opened with the first part"
    if durable:
        written.add_capture(capture(1, 0))
        written.finish()
    written.abandon()
    written.abandon()
    assert store.list("data") == []


def test_a_file_whose_name_is_taken_is_left_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert store.create_if_absent(file_of(1), b"another's")
    written = writer(store)
    with pytest.raises(CheckpointFailed):
        written.add_inflight(ONE, [captured(CHANNELS[0], Side.CONSUMER, 1, rows(1))])
    written.abandon()
    assert store.read(file_of(1)) == b"another's"


def test_a_disk_that_cannot_make_it_durable_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    written = writer(store)
    written.add_capture(capture(1, 0, inflight=[captured(CHANNELS[0], Side.CONSUMER, 1, rows(1))]))

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(CheckpointFailed, match="Input/output"):
        written.finish()
    assert store.list("data") == []


def test_closing_gives_up_what_is_not_confirmed() -> None:
    store = MemoryStore()
    slot = SlotWriter(store, graph(), 1, 0)
    take(slot, 1, 0, [captured(CHANNELS[0], Side.CONSUMER, 1, rows(1))])
    slot.write(RecordedRows(ONE, 2, [captured(CHANNELS[0], Side.CONSUMER, 2, rows(2))]))
    slot.close()
    assert list(store.files) == [file_of(1)]


def test_batches_keep_the_schema_of_their_edge() -> None:
    store = MemoryStore()
    written = writer(store)
    written.add_capture(capture(1, 0, inflight=[captured(CHANNELS[0], Side.CONSUMER, 1, rows(1))]))
    (entry,) = written.finish().subtasks[0].inflight
    (batch,) = load_inflight(store, entry)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema == ROWS
