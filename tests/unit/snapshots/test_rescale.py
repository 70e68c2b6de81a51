"""A snapshot at another parallelism: everything has exactly one owner, whatever the numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from unittest import mock

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.coordinator.machines.commits import pending_commits
from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.elements import Side
from penstock.model.ids import ChannelId
from penstock.model.job_graph import Edge, EdgeKind, JobGraph
from penstock.model.key_groups import owned_range
from penstock.model.manifest import (
    FORMAT_VERSION,
    PlanManifest,
    SectionRef,
    SlotManifest,
    SnapshotMetadata,
    SubtaskManifest,
)
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.operators.base import OperatorState
from penstock.protocol.recovered import RecoveredRows
from penstock.snapshots.catalog import plan_restore
from penstock.snapshots.commands.narrowed_rows import count_narrowed_rows
from penstock.snapshots.commands.showing import find_snapshot_bottleneck
from penstock.snapshots.commands.snapshot_sizes import inflight_entries, stored_bytes
from penstock.snapshots.format.inflight_counts import distinct_rows, divided_bytes
from penstock.snapshots.rescaling.rescale import rescale
from penstock.snapshots.restoring.narrowing import load_consumer_rows, rows_to_replay
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import MemoryStore
from penstock.snapshots.writing import checkpoint_writer
from penstock.state.hashing import key_groups
from penstock.state.stored_form import BatchCapture
from tests.support.effort import some
from tests.support.snapshots.snapshot_kit import COUNT, ROWS, STATE, capture, captured, graph, rows, write_captures

GROUPS = 128
parallelisms = st.integers(1, 12)
few = settings(max_examples=some(25))


def metadata(slots: list[SlotManifest], parallelism: int, max_parallelism: int = GROUPS) -> SnapshotMetadata:
    return SnapshotMetadata(
        FORMAT_VERSION,
        "chk-1",
        "q",
        1,
        1,
        "unaligned",
        False,
        "",
        0,
        parallelism,
        max_parallelism,
        slots,
        [],
        next_batch=0,
    )


def taken(store: MemoryStore, job: JobGraph, subtask: Callable[[int], dict[str, object]]) -> SnapshotMetadata:
    """A snapshot in which subtask i of the counting vertex has what ``subtask(i)`` says."""
    slots = [
        write_captures(store, job, 1, index, [capture(0, index), capture(1, index, **subtask(index))])  # type: ignore[arg-type]
        for index in range(job.parallelism)
    ]
    return metadata(slots, job.parallelism)


def counts(groups: list[int]) -> pa.RecordBatch:
    return pa.record_batch([groups, [g * 10 for g in groups], [g * 100 for g in groups]], schema=STATE)


def counting(plan: list[list[SubtaskManifest]]) -> list[SubtaskManifest]:
    return [next(m for m in slot if m.vertex == 1) for slot in plan]


def own(job: JobGraph, index: int) -> range:
    first, last = owned_range(index, job.parallelism, job.max_parallelism)
    return range(first, last + 1)


@few
@given(before=parallelisms, path=st.lists(parallelisms, min_size=1, max_size=3))
def test_every_key_group_of_state_goes_to_its_owner_alone_however_often_it_moves(before: int, path: list[int]) -> None:
    store, job = MemoryStore(), graph(before)
    found = taken(
        store, job, lambda i: {"operators": {COUNT: OperatorState({"counts": BatchCapture(counts(list(own(job, i))))})}}
    )
    for after in path:
        job = graph(after)
        found = rescale(found, job)
    for index, slot in enumerate(plan_restore(found, job)):
        restored = load_restore(counting([slot])[0], store).operators
        held = restored[COUNT].rows("counts") if COUNT in restored else []
        assert [group for batch in held for group in batch.column(0).to_pylist()] == list(own(job, index))


def test_what_a_subtask_held_of_other_key_groups_was_a_copy_and_stays_behind() -> None:
    store, job = MemoryStore(), graph(2)
    everything = counts(list(range(GROUPS)))
    found = taken(store, job, lambda i: {"operators": {COUNT: OperatorState({"counts": BatchCapture(everything)})}})
    (manifest,) = counting(plan_restore(found, graph(1)))
    (table,) = [load_restore(manifest, store).operators[COUNT].rows("counts")]
    assert [group for batch in table for group in batch.column(0).to_pylist()] == list(range(GROUPS))


def with_rows_in_flight(store: MemoryStore, job: JobGraph, per_channel: int) -> SnapshotMetadata:
    """Put rows of its consumer's keys into every channel, on both sides; values say where they were."""

    def inflight(index: int) -> list[object]:
        found = []
        for producer in range(job.parallelism):
            keys = [key for key in range(4 * per_channel * job.parallelism) if owner(job, key) == index][:per_channel]
            half = len(keys) // 2
            channel = ChannelId(0, producer, index)
            for seq, (side, part) in enumerate(((Side.CONSUMER, keys[:half]), (Side.PRODUCER, keys[half:]))):
                batch = pa.record_batch([part, [f"{producer}-{seq}-{n}" for n in range(len(part))]], schema=ROWS)
                found.append(captured(channel, side, seq, batch))
        return found

    return taken(store, job, lambda i: {"inflight": inflight(i)})


@cache
def group_of(key: int) -> int:
    return int(key_groups(pa.record_batch([pa.array([key], pa.int64())], names=["key"]), (0,), GROUPS)[0])


def owner(job: JobGraph, key: int) -> int:
    return group_of(key) * job.parallelism // GROUPS


def delivered(store: MemoryStore, job: JobGraph, plan: list[list[SubtaskManifest]]) -> list[list[tuple[int, int, str]]]:
    """Return, by subtask, (producer, key, value) in the order of processing."""
    return [
        [
            (entry.producer, row["key"], row["value"])
            for entry in manifest.inflight
            for batch in load_consumer_rows(store, entry, job).batches
            for row in batch.to_pylist()
        ]
        for manifest in counting(plan)
    ]


HASHED: dict[str, Plain] = {"id": 0, "producer": 0, "consumer": 1, "kind": "hash", "keys": ["key"], "schema": []}


def counted(store: MemoryStore, metadata: SnapshotMetadata) -> list[int]:
    """Rows in flight by consumer, as commands on snapshots count them."""
    counts = [0] * metadata.parallelism
    for entry in inflight_entries(count_narrowed_rows(store, metadata, PlanManifest({}, {"exchange-0": HASHED}))):
        counts[entry.consumer] += entry.rows
    return counts


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 7), (7, 3), (12, 7), (20, 21)])
def test_rows_in_flight_go_to_the_owners_of_their_keys_once_and_in_order(before: int, after: int) -> None:
    store, old, new = MemoryStore(), graph(before), graph(after)
    found = with_rows_in_flight(store, old, 6)
    all_rows = sorted(row for rows_of in delivered(store, old, plan_restore(found, old)) for row in rows_of)
    assert len(all_rows) == 6 * before * before
    by_subtask = delivered(store, new, plan_restore(found, new))
    assert sorted(row for rows_of in by_subtask for row in rows_of) == all_rows
    assert counted(store, rescale(found, new)) == [len(rows_of) for rows_of in by_subtask]
    for index, rows_of in enumerate(by_subtask):
        assert {owner(new, key) for _, key, _ in rows_of} <= {index}
        for producer in range(before):
            values = [value for p, key, value in rows_of if p == producer]
            by_key = {key: [v for p, k, v in rows_of if (p, k) == (producer, key)] for _, key, _ in rows_of}
            assert all(one == sorted(one) for one in by_key.values()), values


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (2, 1), (3, 7), (7, 3)])
def test_rows_and_bytes_in_flight_count_once_after_a_rescale(before: int, after: int) -> None:
    store, rows = MemoryStore(), 6 * before * before
    found = rescale(with_rows_in_flight(store, graph(before), 6), graph(after))
    entries = list(inflight_entries(found))
    assert distinct_rows(entries) == rows
    assert len({entry.section for entry in entries}) <= len(entries)
    if after > before:
        assert sum(entry.rows for entry in entries) > rows, "several entries refer to one row"
        last = {entry.section: entry for entry in entries if entry.narrowed}
        further = [
            msgspec.structs.replace(entry, row_start=entry.row_start + 1, rows=entry.rows - 1)
            if last.get(entry.section) is entry
            else entry
            for entry in entries
        ]
        shared = Counter(entry.section for entry in entries)
        alone = sum(shared[section] == 1 for section in last)
        assert distinct_rows(further) == rows - alone, "another consumer still has to read it"
    own = list(inflight_entries(count_narrowed_rows(store, found, PlanManifest({}, {"exchange-0": HASHED}))))
    parts = divided_bytes(own)
    assert sum(parts) == stored_bytes(entry.section for entry in own)
    rows_of = Counter[SectionRef]()
    for entry in own:
        rows_of[entry.section] += entry.rows
    for entry, part in zip(own, parts, strict=True):
        assert abs(part - entry.section.length * entry.rows / rows_of[entry.section]) <= 1


def test_no_skew_is_seen_where_several_subtasks_refer_to_one_section() -> None:
    store, plan = MemoryStore(), PlanManifest({}, {"exchange-0": HASHED})
    found = count_narrowed_rows(store, rescale(with_rows_in_flight(store, graph(1), 600), graph(3)), plan)
    for slot in found.slots:
        for number, subtask in enumerate(slot.subtasks):
            large = [
                msgspec.structs.replace(entry, section=msgspec.structs.replace(entry.section, length=10 << 20))
                for entry in subtask.inflight
            ]
            slot.subtasks[number] = msgspec.structs.replace(subtask, inflight=large)
    bottleneck = find_snapshot_bottleneck(found, plan)
    assert bottleneck.bytes == 20 << 20, "two sections, one for each side of the channel"
    assert (bottleneck.subtask, bottleneck.share) == (-1, 0.0)


@few
@given(before=parallelisms, between=parallelisms, after=parallelisms)
def test_two_rescales_without_a_snapshot_in_between_lose_and_double_nothing(
    before: int, between: int, after: int
) -> None:
    store, old = MemoryStore(), graph(before)
    found = with_rows_in_flight(store, old, 2)
    all_rows = sorted(row for rows_of in delivered(store, old, plan_restore(found, old)) for row in rows_of)
    again = rescale(rescale(found, graph(between)), graph(after))
    by_subtask = delivered(store, graph(after), plan_restore(again, graph(after)))
    assert sorted(row for rows_of in by_subtask for row in rows_of) == all_rows
    assert all(owner(graph(after), key) == index for index, some in enumerate(by_subtask) for _, key, _ in some)


@few
@given(st.data())
def test_how_far_a_narrowed_entry_was_read_counts_all_of_its_rows(data: st.DataObject) -> None:
    store, old, new = MemoryStore(), graph(1), graph(3)
    everybodys = [next(key for key in range(50) if owner(new, key) == index) for index in range(3)]
    keys = data.draw(st.lists(st.integers(0, 50), max_size=30).flatmap(lambda k: st.permutations(k + everybodys)))
    found = taken(store, old, lambda i: {"inflight": [captured(ChannelId(0, 0, 0), Side.CONSUMER, 0, rows(*keys))]})
    for manifest in counting(plan_restore(found, new)):
        (entry,) = manifest.inflight
        assert entry.narrowed
        loaded = load_consumer_rows(store, entry, new)
        read = [mark for reached in loaded.reached for mark in reached.tolist()]
        kept = [key for batch in loaded.batches for key in batch.column("key").to_pylist()]
        assert [keys[mark - 1] for mark in read] == kept
        assert all(one < other for one, other in pairwise(read))
        if read:
            after_first = msgspec.structs.replace(entry, row_start=read[0], rows=entry.rows - read[0])
            rest = load_consumer_rows(store, after_first, new)
            assert [key for batch in rest.batches for key in batch.column("key").to_pylist()] == kept[1:]


def with_edge(job: JobGraph, kind: EdgeKind, key_columns: tuple[int, ...] = ()) -> JobGraph:
    return replace(job, edges=(Edge(0, 0, 1, kind, ROWS, key_columns),))


@pytest.mark.parametrize("entries", [1, 12], ids=["one long entry", "entries of one row"])
@pytest.mark.parametrize("kind", [EdgeKind.REBALANCE, EdgeKind.FORWARD])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 4), (3, 2), (4, 1)])
def test_without_keys_rows_are_spread_evenly(kind: EdgeKind, before: int, after: int, entries: int) -> None:
    store = MemoryStore()
    old, new = (with_edge(graph(n), kind) for n in (before, after))
    found = taken(
        store,
        old,
        lambda i: {"inflight": [captured(ChannelId(0, i, i), Side.PRODUCER, 0, rows(*range(100 * i, 100 * i + 12)))]},
    )
    if entries > 1:
        found = cut_into_rows(found)
    by_subtask = delivered(store, new, plan_restore(found, new))
    keys = [[key for _, key, _ in some] for some in by_subtask]
    assert sorted(key for some in keys for key in some) == sorted(100 * i + n for i in range(before) for n in range(12))
    assert {len(some) for some in keys} == {12 * before // after}
    assert all(
        some_of == sorted(some_of)
        for some in keys
        for i in range(before)
        if (some_of := [k for k in some if k // 100 == i])
    ), "a channel's entries keep their order"


@pytest.mark.parametrize("kind", [EdgeKind.REBALANCE, EdgeKind.FORWARD])
@few
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=8),
    st.lists(parallelisms, min_size=2, max_size=4),
)
def test_without_keys_rows_of_any_layer_stay_spread_evenly_however_often_they_move(
    kind: EdgeKind, backlog: list[tuple[int, int]], path: list[int]
) -> None:
    """All of them wait at one subtask at first."""
    store, total = MemoryStore(), sum(count for _, count in backlog)
    waiting = [
        captured(ChannelId(0, 0, 0), Side.CONSUMER, seq, rows(*range(100 * seq, 100 * seq + count)), layer=layer)
        for seq, (layer, count) in enumerate(backlog)
    ]
    found = taken(store, with_edge(graph(1), kind), lambda i: {"inflight": waiting})
    for after in path:
        job = with_edge(graph(after), kind)
        found = rescale(found, job)
        waits = [sum(entry.rows for entry in manifest.inflight) for manifest in counting(plan_restore(found, job))]
        assert sum(waits) == total
        assert max(waits) - min(waits) <= 1, waits
    keys = sorted(key for some in delivered(store, job, plan_restore(found, job)) for _, key, _ in some)
    assert keys == sorted(100 * seq + n for seq, (_, count) in enumerate(backlog) for n in range(count))


def cut_into_rows(metadata: SnapshotMetadata) -> SnapshotMetadata:
    """Replace every in-flight entry by one for each of its rows."""

    def cut(manifest: SubtaskManifest) -> SubtaskManifest:
        single = [
            msgspec.structs.replace(entry, row_start=entry.row_start + n, rows=1)
            for entry in manifest.inflight
            for n in range(entry.rows)
        ]
        return msgspec.structs.replace(manifest, inflight=single)

    slots = [msgspec.structs.replace(slot, subtasks=[cut(m) for m in slot.subtasks]) for slot in metadata.slots]
    return msgspec.structs.replace(metadata, slots=slots)


@pytest.mark.parametrize("kind", [EdgeKind.HASH, EdgeKind.FORWARD])
@pytest.mark.parametrize(("before", "path"), [(1, (3,)), (2, (3,)), (3, (1, 3)), (1, (3, 2, 7))])
def test_a_section_has_no_reader_that_owns_none_of_its_keys(kind: EdgeKind, before: int, path: tuple[int, ...]) -> None:
    """Each section has rows of one key here: whatever the parallelism, one subtask reads it, and all of it."""
    store, old = MemoryStore(), with_edge(graph(before), kind, (0,))
    keys = range(40)

    def inflight(index: int) -> list[object]:
        own_keys = [key for key in keys if owner(old, key) == index]
        return [captured(ChannelId(0, index, index), Side.CONSUMER, n, rows(*[n] * 5), layer=n) for n in own_keys]

    found = taken(store, old, lambda i: {"inflight": inflight(i)})
    for after in path:
        found = rescale(found, with_edge(graph(after), kind, (0,)))
    new = with_edge(graph(path[-1]), kind, (0,))
    plan = counting(plan_restore(found, new))
    assert sum(len(manifest.inflight) for manifest in plan) == len(keys)
    for index, manifest in enumerate(plan):
        assert not any(entry.narrowed for entry in manifest.inflight)
        read = [
            b.column("key").to_pylist() for e in manifest.inflight for b in load_consumer_rows(store, e, new).batches
        ]
        assert read == [[key] * 5 for key in keys if owner(new, key) == index]


class ReadCountingStore(MemoryStore):
    """Counts how often each section is read, by path and offset."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[tuple[str, int]] = Counter()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        self.reads[path, offset] += 1
        return super().read_range(path, offset, length)


def with_many_sections(store: MemoryStore, job: JobGraph, per_channel: int) -> SnapshotMetadata:
    """Put several sections into every channel, all with rows of all keys of its consumer; values count upwards."""

    def inflight(index: int) -> list[object]:
        keys = [key for key in range(80) if owner(job, key) == index]
        found = []
        for producer in range(job.parallelism):
            for seq in range(per_channel):
                batch = pa.record_batch([keys, [f"{seq:03}"] * len(keys)], schema=ROWS)
                found.append(captured(ChannelId(0, producer, index), Side.CONSUMER, seq, batch))
        return found

    with mock.patch.object(checkpoint_writer, "INFLIGHT_SECTION_BYTES", 1):
        return taken(store, job, lambda i: {"inflight": inflight(i)})


def sections_read(store: ReadCountingStore, job: JobGraph, found: SnapshotMetadata) -> list[Counter[tuple[str, int]]]:
    """Return, by owner, how often it reads each section."""
    by_owner = []
    for manifest in counting(plan_restore(found, job)):
        store.reads.clear()
        for entry in manifest.inflight:
            load_consumer_rows(store, entry, job)
        by_owner.append(Counter(store.reads))
    return by_owner


@pytest.mark.parametrize("path", [(2, 3, 5), (5, 2, 3), (2, 3, 2), (1, 3, 1), (5, 3, 1), (3, 7, 2, 5)])
def test_chains_of_rescales_read_each_section_once_per_owner(path: tuple[int, ...]) -> None:
    """An owner reads what it would have read after one rescale."""
    store, last = ReadCountingStore(), graph(path[-1])
    found = with_many_sections(store, graph(path[0]), 3)
    directly = sections_read(store, last, found)
    for parallelism in path[1:]:
        found = rescale(found, graph(parallelism))
    reads = sections_read(store, last, found)
    assert reads == directly
    assert {count for of_owner in reads for count in of_owner.values()} == {1}


def read_on(
    store: MemoryStore, job: JobGraph, manifest: SubtaskManifest, count: int
) -> tuple[list[tuple[int, int, str]], SubtaskManifest]:
    """Read this many rows as a subtask does; return them, and what a checkpoint has of the rest."""
    recovered = RecoveredRows(manifest.inflight, lambda batch: batch.nbytes, GROUPS)
    recovered.budget = 1
    read: list[tuple[int, int, str]] = []
    while len(read) < count and not recovered.drained:
        for entry in recovered.to_load():
            own_rows = load_consumer_rows(store, entry, job)
            recovered.loaded(entry, own_rows.batches, own_rows.reached)  # type: ignore[arg-type]
        taken = recovered.take(count - len(read))
        if taken is not None:
            rows_of: pa.RecordBatch = taken.payload
            read += [(taken.channel.producer, row["key"], row["value"]) for row in rows_of.to_pylist()]
    return read, msgspec.structs.replace(manifest, inflight=recovered.carried())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("path", [(1, 3, 1), (1, 4, 1), (2, 3, 5), (5, 2, 3), (3, 6, 2, 1)])
def test_rows_that_are_read_between_rescales_are_read_once_and_in_order(path: tuple[int, ...], seed: int) -> None:
    """Each subtask reads as far as it gets before the next rescale."""
    chance, store, job = random.Random(seed), MemoryStore(), graph(path[0])
    found = with_many_sections(store, job, 4)
    expected = Counter(row for rows_of in delivered(store, job, plan_restore(found, job)) for row in rows_of)
    read: list[tuple[int, int, str]] = []
    for number, parallelism in enumerate(path):
        job = graph(parallelism)
        slots, to_read = [], []
        for index, manifests in enumerate(plan_restore(found, job)):
            (manifest,) = counting([manifests])
            share = parallelism if number == len(path) - 1 else chance.choice((0, 0.1, 0.5, 0.9, 1))
            rows_of, rest = read_on(store, job, manifest, int(expected.total() / parallelism * share))
            assert {owner(job, key) for _, key, _ in rows_of} <= {index}
            read += rows_of
            to_read.append([rest])
            slots.append(SlotManifest(index, [rest if m.vertex == rest.vertex else m for m in manifests]))
        assert rows_to_replay(store, to_read, job, exactly=True) == expected.total() - len(read)
        found = metadata(slots, parallelism)
    assert Counter(read) == expected
    by_channel_and_key: dict[tuple[int, int], list[str]] = {}
    for producer, key, value in read:
        by_channel_and_key.setdefault((producer, key), []).append(value)
    assert all(values == sorted(values) for values in by_channel_and_key.values())


def test_a_hash_edge_without_keys_has_one_reader() -> None:
    store = MemoryStore()
    old, new = (with_edge(graph(n), EdgeKind.HASH) for n in (1, 3))
    waiting = captured(ChannelId(0, 0, 0), Side.CONSUMER, 0, rows(*range(20)))
    found = taken(store, old, lambda i: {"inflight": [waiting]})
    plan = plan_restore(found, new)
    assert sorted(len(manifest.inflight) for manifest in counting(plan)) == [0, 0, 1]
    assert sorted(len(some) for some in delivered(store, new, plan)) == [0, 0, 20]


def test_a_broadcast_row_matters_at_each_place_to_the_keys_that_were_there() -> None:
    """One copy was processed already where key 3 is not; what is left of the other matters to key 3 alone."""
    store = MemoryStore()
    old, new = (with_edge(graph(n), EdgeKind.BROADCAST, (0,)) for n in (2, 1))
    late = owner(old, 3)
    found = taken(
        store,
        old,
        lambda i: {
            "inflight": [captured(ChannelId(0, 0, late), Side.CONSUMER, 0, rows(*range(20)))] if i == late else []
        },
    )
    (some,) = delivered(store, new, plan_restore(found, new))
    assert [key for _, key, _ in some] == [key for key in range(20) if owner(old, key) == late]


@few
@given(before=parallelisms, after=parallelisms, homes=st.lists(st.none() | st.integers(0, 9), max_size=30))
def test_every_split_has_one_reader_and_those_with_a_home_are_there(
    before: int, after: int, homes: list[int | None]
) -> None:
    assume(before != after)
    store, job = MemoryStore(), graph(before)
    splits = [Split(f"s{n}", {}, {"at": n}, home) for n, home in enumerate(homes)]
    found = taken(store, job, lambda i: {})
    slots = [
        msgspec.structs.replace(
            slot,
            subtasks=[
                msgspec.structs.replace(m, splits=splits[m.index :: before] if m.vertex == 0 else [])
                for m in slot.subtasks
            ],
        )
        for slot in found.slots
    ]
    plan = plan_restore(msgspec.structs.replace(found, slots=slots), graph(after))
    dealt = [next(m for m in slot if m.vertex == 0).splits for slot in plan]
    assert sorted((s for some in dealt for s in some), key=lambda s: s.split_id) == sorted(
        splits, key=lambda s: s.split_id
    )
    assert all(s.home is None or s.home % after == i for i, some in enumerate(dealt) for s in some)
    free = [sum(split.home is None for split in some) for some in dealt]
    assert max(free) - min(free) <= 1


def test_a_channel_stands_where_the_least_of_its_forebears_stood_and_nowhere_if_one_of_them_did() -> None:
    store, old = MemoryStore(), graph(2)
    stood = {0: {ChannelId(0, 0, 0): 50, ChannelId(0, 1, 0): 70}, 1: {ChannelId(0, 0, 1): 60, ChannelId(0, 1, 1): 40}}
    found = taken(store, old, lambda i: {"watermarks": stood[i]})
    (one,) = counting(plan_restore(found, graph(1)))
    assert one.channel_watermarks == {"0:0": 40}
    four = counting(plan_restore(found, graph(4)))
    assert [m.channel_watermarks for m in four] == [
        *[{f"0:{p}": 50 for p in range(4)}] * 2,
        *[{f"0:{p}": 40 for p in range(4)}] * 2,
    ]
    del stood[1][ChannelId(0, 0, 1)]
    found = taken(MemoryStore(), old, lambda i: {"watermarks": stood[i]})
    assert [m.channel_watermarks for m in counting(plan_restore(found, graph(1)))] == [{}]


def test_a_channel_without_keys_stands_where_the_least_of_all_stood_also_beside_one_with_keys() -> None:
    """Splits are dealt out anew: any of them may be read in front of any forward channel."""
    old, new = (
        replace(graph(n), edges=(Edge(0, 0, 1, EdgeKind.HASH, ROWS, (0,)), Edge(1, 0, 1, EdgeKind.FORWARD, ROWS)))
        for n in (2, 4)
    )
    stood = {
        i: {ChannelId(0, 0, i): hashed, ChannelId(0, 1, i): hashed, ChannelId(1, i, i): forward}
        for i, hashed, forward in ((0, 50, 90), (1, 60, 30))
    }
    found = taken(MemoryStore(), old, lambda i: {"watermarks": stood[i]})
    four = counting(plan_restore(found, new))
    assert [m.channel_watermarks for m in four] == [
        {**{f"0:{p}": 50 if i < 2 else 60 for p in range(4)}, f"1:{i}": 30} for i in range(4)
    ]


def test_scalars_are_handed_on_with_the_key_groups_that_they_were_for() -> None:
    store, old = MemoryStore(), graph(2)
    found = taken(store, old, lambda i: {"operators": {COUNT: OperatorState({}, {"seen": i})}})
    parts = [
        [(p.index, p.first, p.last, p.scalars["seen"]) for p in load_restore(m, store).operators[COUNT].parts]
        for m in counting(plan_restore(found, graph(3)))
    ]
    assert parts == [[(0, 0, 42, 0)], [(0, 43, 63, 0), (1, 64, 85, 1)], [(1, 86, 127, 1)]]
    (same, _) = counting(plan_restore(found, old))
    restored = load_restore(same, store).operators[COUNT]
    assert (restored.rescaled, restored.scalars) == (False, {"seen": 0})


@few
@given(path=st.lists(parallelisms, min_size=1, max_size=4))
def test_commit_messages_outlive_the_subtasks_that_staged_them(path: list[int]) -> None:
    store, old = MemoryStore(), graph(5)
    found = taken(store, old, lambda i: {"messages": {1: f"m{i}".encode()}})
    for after in path:
        found = rescale(found, graph(after))
    (pending,) = pending_commits(found.slots, {1: "sink"}, 0, 1, {1: 0})
    assert pending.messages == {i: f"m{i}".encode() for i in range(5)}
    kept = [m.inherited_messages for slot in plan_restore(found, graph(path[-1]), 1) for m in slot]
    assert not any(kept), "what is committed is not carried on"


def test_rows_read_in_life_are_counted_once() -> None:
    found = taken(MemoryStore(), graph(5), lambda i: {})
    for after in (1, 3, 8):
        assert sum(m.rows_in for m in counting(plan_restore(found, graph(after)))) == 5 * 17


def test_key_groups_cannot_be_changed_and_a_missing_subtask_is_named() -> None:
    found = taken(MemoryStore(), graph(2), lambda i: {})
    with pytest.raises(LocationError, match="maxParallelism 128, which cannot be changed"):
        plan_restore(found, replace(graph(2), max_parallelism=64))
    with pytest.raises(CorruptSnapshot, match="subtask 1 of vertex 0"):
        plan_restore(msgspec.structs.replace(found, slots=found.slots[:1]), graph(3))


def test_what_is_whole_is_not_filtered() -> None:
    store, job = MemoryStore(), graph(2)
    found = with_rows_in_flight(store, job, 4)
    for manifest in counting(plan_restore(found, job)):
        assert not any(entry.narrowed for entry in manifest.inflight)
        assert all(np.size(load_consumer_rows(store, entry, job).reached) == 0 for entry in manifest.inflight)
