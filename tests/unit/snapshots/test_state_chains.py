"""Tables as chains of bases and deltas: what is restored is what was there, and small changes cost little."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointFailed, CorruptSnapshot
from penstock.model.ids import SubtaskId
from penstock.model.key_groups import owned_range
from penstock.model.manifest import SectionRef, SlotManifest, StateEntry, SubtaskManifest
from penstock.operators.base import OperatorState
from penstock.snapshots.format.sections import SectionWriter, read_section, state_path
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import MemoryStore
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.snapshots.writing.state_index import (
    BASE,
    DELTA,
    MAX_DELTAS,
    TableBase,
    merge_ranges,
    plan_rebase,
    subtract,
    without_groups,
)
from penstock.snapshots.writing.state_sections import WHOLE_BYTES, split_into_sections
from penstock.state.stored_form import KEY_GROUP_COLUMN, BatchCapture, delta_schema
from penstock.state.table import TableCapture
from penstock.testing.failure import SimulationFailure
from simulator.jobs.count_table import CountTable
from simulator.jobs.count_table import merged as rows_of
from simulator.jobs.rows import group_of, state_schema
from tests.support.effort import some
from tests.support.snapshots.snapshot_kit import COUNT, STATE, CountSpec, capture, graph, state

SCHEMA = state_schema("key", "count")
GROUPS = 128
FIRST, LAST = owned_range(0, 2, GROUPS)
OWNED = [key for key in range(2_000) if FIRST <= group_of(key, GROUPS) <= LAST]


class Subtask:
    """A subtask with one table, and the slot that writes it. ``whole_bytes``: see ``StateWriter``."""

    def __init__(self, store: MemoryStore, generation: int = 1, whole_bytes: int = 0) -> None:
        self.store = store
        self.table = CountTable(SCHEMA, GROUPS)
        self.slot = SlotWriter(store, graph(), generation, 0, whole_bytes)

    def restore(self, checkpoint: int, manifest: SubtaskManifest) -> None:
        self.table.load(load_restore(manifest, self.store).operators[COUNT].tables["counts"])
        self.slot.restored(checkpoint, [manifest])

    def capture(self) -> TableCapture:
        return self.table.capture()

    def write(self, checkpoint: int, base: int, captured: TableCapture | None = None) -> SlotManifest:
        self.slot.begin(checkpoint, base)
        self.slot.write(capture(0, 0, checkpoint))
        operators = {COUNT: OperatorState({"counts": captured or self.capture()})}
        assert self.slot.write(capture(1, 0, checkpoint, operators=operators))
        return self.slot.finish(checkpoint)

    def checkpoint(self, checkpoint: int, base: int) -> list[StateEntry]:
        manifest = self.write(checkpoint, base)
        self.slot.confirm(checkpoint)
        return manifest.subtasks[1].states


def content(store: MemoryStore, entries: Sequence[StateEntry]) -> dict[int, int]:
    """Return the restored content of a table."""
    pieces = load_restore(SubtaskManifest(1, 0, states=list(entries)), store).operators[COUNT].tables["counts"]
    return dict(rows_of(pieces, 1))  # type: ignore[arg-type]


def now(table: CountTable) -> dict[int, int]:
    return {key: count for (key,), count in table.items()}


def check_entries(entries: Sequence[StateEntry]) -> None:
    """Bases are disjoint and come first; no group has an entry from before its base."""
    kinds = [entry.kind for entry in entries]
    assert kinds == sorted(kinds), "base before delta"
    ranges = [(e.key_group_first, e.key_group_last) for e in entries if e.kind == BASE and e.key_group_last >= 0]
    assert len({g for first, last in ranges for g in range(first, last + 1)}) == sum(b - a + 1 for a, b in ranges)


def chain_of(entries: Sequence[StateEntry], group: int) -> list[StateEntry]:
    return [entry for entry in entries if entry.key_group_first <= group <= entry.key_group_last]


def longest_chain(entries: Sequence[StateEntry]) -> int:
    return max(len([e for e in chain_of(entries, g) if e.kind == DELTA]) for g in range(FIRST, LAST + 1))


def change(table: CountTable, keys: Sequence[int], count: int) -> None:
    """Set these; with 0 remove them."""
    for key in keys:
        if count:
            table[key,] = count
        else:
            table.pop((key,), None)


# -- what is restored -----------------------------------------------------------------------------------------------


@settings(max_examples=some(150), deadline=None)
@given(st.data())
def test_every_complete_checkpoint_restores_to_what_was_there(data: st.DataObject) -> None:
    """Checkpoints overlap, are aborted once they are written, or are what the next Generation starts from."""
    store = MemoryStore()
    subtask = Subtask(store)
    complete: dict[int, tuple[SlotManifest, dict[int, int]]] = {}
    waiting: list[tuple[int, int, TableCapture, dict[int, int]]] = []
    generation, base, numbers = 1, 0, itertools.count(1)
    for checkpoint in range(1, data.draw(st.integers(1, 14), "checkpoints") + 1):
        changed = data.draw(st.lists(st.sampled_from(OWNED[:60]), max_size=40), "changed")
        change(subtask.table, changed, next(numbers))
        change(subtask.table, data.draw(st.lists(st.sampled_from(OWNED[:60]), max_size=10), "removed"), 0)
        waiting.append((checkpoint, base, subtask.capture(), now(subtask.table)))
        if data.draw(st.booleans(), "waits"):
            continue
        for number, its_base, captured, expected in waiting:
            manifest = subtask.write(number, its_base, captured)
            if data.draw(st.sampled_from([True, True, False]), "completes"):
                subtask.slot.confirm(number)
                complete[number] = manifest, expected
                base = number
            else:
                subtask.slot.abandon(number)
                assert state_path(generation, number, 0) not in store.files
        waiting.clear()
        if base and data.draw(st.integers(0, 4), "restart") == 0:
            generation += 1
            manifest, expected = complete[base]
            subtask = Subtask(store, generation)
            subtask.restore(base, manifest.subtasks[1])
            assert now(subtask.table) == expected
    for manifest, expected in complete.values():
        entries = manifest.subtasks[1].states
        check_entries(entries)
        assert content(store, entries) == expected
        left = data.draw(st.integers(FIRST, LAST + 1), "first group of another subtask")
        others = list(without_groups(entries, [(FIRST, left - 1)]))
        if others:
            assert content(store, others) == {k: c for k, c in expected.items() if group_of(k, GROUPS) >= left}


def test_a_checkpoint_that_was_aborted_is_nobodys_base() -> None:
    subtask = Subtask(MemoryStore())
    change(subtask.table, OWNED, 1)
    subtask.checkpoint(1, 0)
    change(subtask.table, OWNED[:5], 2)
    subtask.write(2, 1)
    subtask.slot.abandon(2)
    change(subtask.table, OWNED[5:8], 3)
    entries = subtask.checkpoint(3, 1)
    assert [e.rows for e in entries if e.kind == DELTA][-1] == 8
    assert content(subtask.store, entries) == now(subtask.table)
    change(subtask.table, OWNED[9:10], 4)
    whole = subtask.checkpoint(4, 2)
    assert {entry.kind for entry in whole} == {BASE}, "of an aborted one nothing is known"


def test_an_empty_table_is_said_to_be_empty_and_may_become_so_again() -> None:
    store = MemoryStore()
    subtask = Subtask(store)
    (entry,) = subtask.checkpoint(1, 0)
    assert (entry.kind, entry.rows, entry.key_group_first, entry.key_group_last) == (BASE, 0, 0, -1)
    assert content(store, [entry]) == {}
    change(subtask.table, OWNED[:3], 1)
    assert content(store, subtask.checkpoint(2, 1)) == dict.fromkeys(OWNED[:3], 1)
    change(subtask.table, OWNED[:3], 0)
    (entry,) = subtask.checkpoint(3, 2)
    assert (entry.kind, entry.rows) == (BASE, 0)


def test_rows_outside_of_the_usual_key_groups_are_written_as_well() -> None:
    """Behind an edge that does not hash, a table has rows of any key group."""
    subtask = Subtask(MemoryStore())
    change(subtask.table, range(300), 1)
    assert content(subtask.store, subtask.checkpoint(1, 0)) == now(subtask.table)
    change(subtask.table, [3, 1_900, 1_901], 2)
    entries = subtask.checkpoint(2, 1)
    assert {entry.kind for entry in entries} == {BASE, DELTA}
    assert content(subtask.store, entries) == now(subtask.table)


def test_sections_are_read_one_at_a_time_and_only_when_they_are_asked_for() -> None:
    store = MemoryStore()
    subtask = Subtask(store)
    change(subtask.table, OWNED, 1)
    subtask.checkpoint(1, 0)
    change(subtask.table, OWNED[:9], 2)
    entries = subtask.checkpoint(2, 1)
    store.files[state_path(1, 2, 0)] = b""
    pieces = iter(load_restore(SubtaskManifest(1, 0, states=entries), store).operators[COUNT].tables["counts"])
    assert not next(pieces).is_delta
    with pytest.raises(CorruptSnapshot, match=r"1-2-0-state"):
        list(pieces)


# -- what is written ------------------------------------------------------------------------------------------------


def test_one_percent_of_changes_costs_about_two_and_a_half_times_as_much() -> None:
    store, chance = MemoryStore(), random.Random(1)
    subtask = Subtask(store)
    change(subtask.table, OWNED, 1)
    rows, changed = len(OWNED), len(OWNED) // 100
    subtask.checkpoint(1, 0)
    written = 0
    for checkpoint in range(2, 3 * MAX_DELTAS):
        change(subtask.table, chance.sample(OWNED, changed), checkpoint)
        entries = subtask.checkpoint(checkpoint, checkpoint - 1)
        own = {e.section: e.rows for e in entries if e.section.path == state_path(1, checkpoint, 0)}
        written += sum(own.values())
        assert sum(own.values()) < rows / 10, "never all at once"
        assert longest_chain(entries) <= MAX_DELTAS + 1
        anew = [e.key_group_first for e in entries if e.kind == BASE and e.section in own]
        assert all(len(chain_of(entries, group)) == 1 for group in anew), "nothing applies to a new base"
        deltas = {e.section: e.rows for e in entries if e.kind == DELTA}
        assert sum(deltas.values()) <= rows
    assert 2.0 < written / (3 * MAX_DELTAS - 2) / changed < 3.0
    assert content(store, entries) == now(subtask.table)


def test_what_changes_much_is_rebased_soon() -> None:
    subtask = Subtask(MemoryStore())
    change(subtask.table, OWNED, 1)
    subtask.checkpoint(1, 0)
    for checkpoint in range(2, 40):
        change(subtask.table, random.Random(checkpoint).sample(OWNED, len(OWNED) // 5), checkpoint)
        entries = subtask.checkpoint(checkpoint, checkpoint - 1)
        assert longest_chain(entries) <= 6
    assert content(subtask.store, entries) == now(subtask.table)


def test_a_table_that_changed_wholly_is_written_once() -> None:
    subtask = Subtask(MemoryStore())
    change(subtask.table, OWNED, 1)
    subtask.checkpoint(1, 0)
    change(subtask.table, OWNED, 2)
    entries = subtask.checkpoint(2, 1)
    assert {(e.kind, e.section.path) for e in entries} == {(BASE, state_path(1, 2, 0))}


def test_a_checkpoint_without_a_change_writes_nothing() -> None:
    store = MemoryStore()
    subtask = Subtask(store)
    change(subtask.table, OWNED, 1)
    subtask.checkpoint(1, 0)
    change(subtask.table, OWNED[:7], 2)
    entries = subtask.checkpoint(2, 1)
    before = dict(store.files)
    manifest = subtask.write(3, 2)
    assert manifest.subtasks[1].states == entries
    assert store.files == before
    metrics = manifest.metrics[1]
    assert metrics.state_bytes == 0
    assert metrics.state_total_bytes == sum(section.length for section in {e.section for e in entries})
    assert metrics.state_rows == {COUNT: len(OWNED)}


def test_groups_that_never_change_keep_their_base_and_a_hot_one_is_rebased_once_per_round() -> None:
    subtask = Subtask(MemoryStore())
    change(subtask.table, OWNED, 1)
    subtask.checkpoint(1, 0)
    hot = OWNED[0]
    rebased = 0
    for checkpoint in range(2, 3 * MAX_DELTAS + 2):
        change(subtask.table, [hot], checkpoint)
        entries = subtask.checkpoint(checkpoint, checkpoint - 1)
        own = [e for e in entries if e.section.path == state_path(1, checkpoint, 0)]
        groups = {g for e in own for g in range(e.key_group_first, e.key_group_last + 1)}
        assert groups == {group_of(hot, GROUPS)}, "nothing else is written"
        rebased += own[0].kind == BASE
        assert longest_chain(entries) <= MAX_DELTAS + 1
    assert rebased == 3
    assert content(subtask.store, entries) == now(subtask.table)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("groups", [8, 64])
def test_chains_stay_bounded_if_every_checkpoint_is_followed_by_a_restart(groups: int) -> None:
    store = MemoryStore()
    subtask = Subtask(store)
    keys = [key for key in OWNED if group_of(key, GROUPS) < FIRST + groups]
    change(subtask.table, keys, 1)
    subtask.checkpoint(1, 0)
    manifest = SubtaskManifest(1, 0)
    for checkpoint in range(2, 3 * MAX_DELTAS):
        change(subtask.table, [keys[checkpoint * 7 % len(keys)], keys[checkpoint % len(keys)]], checkpoint)
        entries = subtask.checkpoint(checkpoint, checkpoint - 1)
        assert longest_chain(entries) <= groups + 1
        manifest = SubtaskManifest(1, 0, states=entries)
        expected = now(subtask.table)
        subtask = Subtask(store, checkpoint)
        subtask.restore(checkpoint, manifest)
        assert now(subtask.table) == expected


def test_a_small_table_is_written_whole_because_references_are_not_smaller() -> None:
    store = MemoryStore()
    subtask = Subtask(store, whole_bytes=WHOLE_BYTES)
    change(subtask.table, OWNED[:50], 1)
    first = subtask.checkpoint(1, 0)
    assert subtask.checkpoint(2, 1) == first
    change(subtask.table, OWNED[:1], 2)
    (entry,) = subtask.checkpoint(3, 2)
    assert (entry.kind, entry.rows, entry.section.path) == (BASE, 50, state_path(1, 3, 0))


def test_without_what_changed_everything_is_written() -> None:
    subtask = Subtask(MemoryStore())
    captured = [BatchCapture(state(*groups)) for groups in ((1, 5), (1, 5))]
    for checkpoint, one in enumerate(captured, start=1):
        (entry,) = subtask.write(checkpoint, checkpoint - 1, one).subtasks[1].states
        subtask.slot.confirm(checkpoint)
        assert (entry.kind, entry.rows, entry.key_group_first, entry.key_group_last) == (BASE, 2, 1, 5)
        assert entry.section.path == state_path(1, checkpoint, 0)


# -- sections -------------------------------------------------------------------------------------------------------


def state_of(groups: Sequence[int]) -> pa.RecordBatch:
    numbers = list(range(len(groups)))
    return pa.record_batch([list(groups), numbers, numbers], schema=STATE)


@settings(max_examples=some(100), deadline=None)
@given(st.lists(st.integers(0, 20), max_size=80), st.data())
def test_sections_end_between_key_groups_at_about_their_size(groups: list[int], data: st.DataObject) -> None:
    groups.sort()
    cuts = sorted({0, len(groups), *data.draw(st.lists(st.integers(0, len(groups)), max_size=8))})
    whole = state_of(groups)
    batches = [whole.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    row = STATE.field(0).type.bit_width // 8 + 16
    limit = data.draw(st.integers(1, 30)) * row
    sections = []
    for section in split_into_sections(batches, limit):
        written = list(section)
        assert all(batch.num_rows for batch in written)
        sections.append((written, section.rows, section.first, section.last))
    found = [g for written, *_ in sections for batch in written for g in batch.column(0).to_pylist()]
    assert found == groups
    for written, count, first, last in sections:
        mine = [g for batch in written for g in batch.column(0).to_pylist()]
        assert (count, first, last) == (len(mine), mine[0], mine[-1])
        largest = max(mine.count(g) for g in mine)
        assert len(mine) * row <= limit + (largest - 1) * row + row, "a group is never cut, so one may be larger"
    for (*_, last), (_, _, first, _) in itertools.pairwise(sections):
        assert last < first
    for (_, count, *_), (after, *_) in itertools.pairwise(sections):
        begun = after[0].column(0)[0].as_py()
        assert (count + groups.count(begun)) * row > limit, "the next group would have fitted"


def test_batches_are_written_as_they_come() -> None:
    alive = 0

    def batches() -> object:
        nonlocal alive
        for group in range(50):
            alive = group
            yield state_of([group] * 10)

    for number, section in enumerate(split_into_sections(batches(), 1)):  # type: ignore[arg-type]
        assert alive <= number + 1, "no more than the next batch is asked for"
        assert [batch.num_rows for batch in section] == [10]


def test_a_large_base_has_several_sections_and_a_reader_of_few_groups_reads_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "penstock.snapshots.writing.state_sections.split_into_sections",
        lambda batches: split_into_sections(batches, 2_000),
    )
    store = MemoryStore()
    subtask = Subtask(store)
    change(subtask.table, OWNED, 1)
    entries = subtask.checkpoint(1, 0)
    assert len(entries) > 5
    assert sum(entry.rows for entry in entries) == len(OWNED)
    assert content(store, entries) == now(subtask.table)
    mine = list(without_groups(entries, [(FIRST + 9, LAST)]))
    assert len({entry.section for entry in mine}) <= 3
    assert sum(len(batch) for entry in mine for batch in read_section(store, entry.section)) < len(OWNED) / 3


# -- ranges ---------------------------------------------------------------------------------------------------------

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(-1, 30)), max_size=6)


def groups_of(ranges: Sequence[tuple[int, int]]) -> set[int]:
    return {group for first, last in ranges for group in range(first, last + 1)}


@given(RANGES, st.tuples(st.integers(0, 30), st.integers(-1, 30)))
def test_ranges_are_sets_of_groups(ranges: list[tuple[int, int]], whole: tuple[int, int]) -> None:
    joined = merge_ranges(ranges)
    assert groups_of(joined) == groups_of(ranges)
    assert all(b + 1 < c for (_, b), (c, _) in itertools.pairwise(joined))
    left = list(subtract(whole, joined))
    assert groups_of(left) == groups_of([whole]) - groups_of(ranges)
    assert all(a <= b for a, b in left)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60), st.integers(1, 500), st.integers(1, 500), st.data())
def test_the_window_goes_round(
    first: int, more: int, cursor: int, changed: int, rows: int, data: st.DataObject
) -> None:
    section = SectionRef("data/x", 0, 10, "i", "c")
    last = first + more
    delta = sorted(data.draw(st.tuples(st.integers(first, last), st.integers(first, last))))
    entries = [
        StateEntry(COUNT, "counts", BASE, 1, first, last, section),
        StateEntry(COUNT, "counts", DELTA, 1, *delta, section),
    ]
    credit = data.draw(st.floats(0, 1))
    step = plan_rebase(TableBase(entries, 1, lambda: None, cursor, credit), changed, rows)
    if changed >= rows:
        assert step is None
        return
    assert step is not None
    assert 0 <= step.credit < 1
    start = cursor if first <= cursor <= last else first
    count = int(credit + (more + 1) * max(changed / rows, 1 / MAX_DELTAS))
    window = [first + (start - first + i) % (more + 1) for i in range(min(count, more + 1))]
    assert [g for a, b in step.ranges for g in range(a, b + 1)] == [g for g in window if delta[0] <= g <= delta[1]]
    assert step.cursor == first + (start - first + len(window)) % (more + 1)


# -- captures -------------------------------------------------------------------------------------------------------


def test_a_capture_is_released_once_it_is_written_and_when_the_store_fails() -> None:
    store = MemoryStore()
    subtask = Subtask(store)
    change(subtask.table, OWNED[:9], 1)
    written = subtask.capture()
    subtask.write(1, 0, written)
    subtask.slot.confirm(1)
    failing = subtask.capture()

    def fail(effect: object) -> None:
        raise OSError(28, "No space left on device")

    store.hook = fail
    change(subtask.table, OWNED[:2], 2)
    lost = subtask.capture()
    with pytest.raises(CheckpointFailed, match=r"1-2-0-state"):
        subtask.write(2, 1, lost)
    subtask.slot.abandon(2)
    for captured in (written, lost):
        with pytest.raises(SimulationFailure, match="after its release"):
            list(captured.base(0, GROUPS - 1))
    list(failing.base(0, GROUPS - 1))


def test_tables_forget_what_is_older_than_every_base_in_use() -> None:
    subtask = Subtask(MemoryStore())
    serials = {}
    for checkpoint in (1, 2, 3):
        change(subtask.table, OWNED[:checkpoint], checkpoint)
        captured = subtask.capture()
        serials[checkpoint] = captured.serial
        subtask.write(checkpoint, checkpoint - 1, captured)
        if checkpoint < 3:
            subtask.slot.confirm(checkpoint)
    assert subtask.table.known_since == serials[2], "2 is the base of 3 and was announced"
    subtask.slot.begin(4, 2)
    subtask.slot.confirm(3)
    subtask.slot.begin(5, 3)
    assert subtask.table.known_since == serials[2], "4 has it as its base still"
    subtask.slot.abandon(4)
    assert subtask.table.known_since == serials[3]


def test_one_subtasks_entries_are_no_base_of_another() -> None:
    store = MemoryStore()
    subtask = Subtask(store)
    change(subtask.table, OWNED, 1)
    entries = subtask.checkpoint(1, 0)
    other = Subtask(store, 2)
    other.slot.restored(1, [SubtaskManifest(1, 1, states=entries)])
    assert SubtaskId(1, 1) != SubtaskId(1, 0)
    change(other.table, OWNED[:1], 1)
    assert {entry.section.path for entry in other.checkpoint(2, 1)} == {state_path(2, 2, 0)}


def test_entries_survive_json() -> None:
    subtask = Subtask(MemoryStore())
    change(subtask.table, OWNED[:40], 1)
    manifest = subtask.write(1, 0)
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=SlotManifest) == manifest


def test_bases_and_deltas_of_narrower_columns_are_read_as_the_table_is_now() -> None:
    key_groups = pa.array([3, 7], pa.int16())
    narrow = pa.schema([(KEY_GROUP_COLUMN, pa.int16()), ("key", pa.int64()), ("count", pa.int32())])
    wide = narrow.set(2, pa.field("count", pa.int64()))
    base = pa.record_batch([key_groups, [1, 2], pa.array([10, 20], pa.int32())], schema=narrow)
    delta = pa.record_batch(
        [pa.array([3, 7], pa.int16()), [1, 2], pa.array([11, None], pa.int32()), [False, True]],
        schema=delta_schema(narrow),
    )
    store = MemoryStore()
    entries = []
    with SectionWriter(store, "data/1-1-0-state.arrows") as file:
        for kind, batch in (("base", base), ("delta", delta)):
            section = file.append(kind, batch.schema, [(batch, None)])
            entries.append(StateEntry(COUNT, "counts", kind, batch.num_rows, 0, 127, section))
    manifest = SubtaskManifest(1, 0, states=entries)
    pieces = list(load_restore(manifest, store, [CountSpec(states={"counts": wide})]).operators[COUNT].tables["counts"])
    assert [piece.batch.schema for piece in pieces] == [wide, delta_schema(wide)]
    assert pieces[1].batch.to_pylist()[0] == {KEY_GROUP_COLUMN: 3, "key": 1, "count": 11, "__deleted": False}
    assert pieces[1].is_delta
