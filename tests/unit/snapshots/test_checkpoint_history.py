"""The history of checkpoints: nothing is lost or doubled by merging, pages read what they need, damage stays where it
is."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptSnapshot
from penstock.model.manifest import MAX_LABEL
from penstock.snapshots.history import segment_writer
from penstock.snapshots.history.reading import History, warn_once
from penstock.snapshots.history.records import MAX_REASON, CheckpointRecord
from penstock.snapshots.history.segment_writer import SegmentWriter
from penstock.snapshots.history.segments import CODEC, OpenSegment, StoredCheckpoint, build_segment, list_segments
from penstock.snapshots.store.store import MemoryStore
from tests.support.effort import some
from tests.support.snapshots.history_kit import captures, entry, record

ADDED = "inflight_processed_bytes"


def numbers(records: list[CheckpointRecord]) -> list[int]:
    return [one.checkpoint for one in records]


def tokens() -> Callable[[], str]:
    count = itertools.count()
    return lambda: f"{next(count):016x}"


class Meter(MemoryStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[str, int]] = []

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        data = super().read_range(path, offset, length)
        self.looks.append((path, len(data)))
        return data


def written(store: MemoryStore, first: int, last: int, generation: int = 1) -> None:
    keeper = SegmentWriter(store)
    for checkpoint in range(first, last + 1):
        keeper.append([entry(checkpoint, generation)])
        keeper.compact()


def test_every_checkpoint_comes_back_with_its_figures_however_segments_were_merged() -> None:
    store = MemoryStore()
    written(store, 1, 300)
    assert len(list_segments(store)) < segment_writer.SEGMENTS_PER_MERGE + 5
    history = History(store)
    assert history.page(None, 1000) == [record(number) for number in range(300, 0, -1)]
    found = history.find(17)
    assert found is not None
    assert (found.checkpoint, found.generation) == (17, 1)
    assert found.subtasks == tuple(captures(17))
    assert history.find(301) is None


def test_figures_that_were_written_before_one_was_measured_are_read() -> None:
    store = MemoryStore()
    figures = [{k: v for k, v in one.items() if k != ADDED} for one in msgspec.to_builtins(captures(7))]
    content = msgspec.json.encode(figures)
    segment, data = build_segment(
        [StoredCheckpoint(record(7), pa.compress(content, codec=CODEC, asbytes=True), len(content))], "0" * 16
    )
    store.create_if_absent(segment.path, data)
    found = History(store).find(7)
    assert found is not None
    assert [one.inflight_processed_bytes for one in found.subtasks] == [0, 0]


def test_runs_go_on_with_one_history() -> None:
    store = MemoryStore()
    for run in range(5):
        written(store, 20 * run + 1, 20 * run + 13, generation=run + 1)
    page = History(store).page(None, 30)
    assert numbers(page)[:14] == [*range(93, 80, -1), 73]
    assert [one.generation for one in page[:14]] == [5] * 13 + [4]
    assert len(History(store).page(None, 100)) == 65


def test_a_page_reads_what_it_needs_of_ten_thousand() -> None:
    store = Meter()
    keeper = SegmentWriter(store)
    for first in range(1, 10_000, 40):
        keeper.append([entry(number) for number in range(first, first + 40)])
        keeper.compact()
    history = History(store)
    for before in (None, 9_000, 5_001, 51):
        store.looks.clear()
        top = 10_001 if before is None else before
        assert numbers(history.page(before, 50)) == list(range(top - 1, top - 51, -1))
        assert len(store.looks) <= 3, before
        assert sum(size for _, size in store.looks) < 3 * (128 << 10)
    store.looks.clear()
    assert history.find(5_000) is not None
    assert len(store.looks) <= 2


def test_the_oldest_are_dropped_and_never_the_newest_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "KEPT_CHECKPOINTS", 300)
    store = MemoryStore()
    written(store, 1, 1000)
    kept = numbers(History(store).page(None, 2000))
    assert kept == list(range(1000, 1000 - len(kept), -1))
    assert 300 <= len(kept) < 300 + 2 * segment_writer.MERGED_CHECKPOINTS + segment_writer.SEGMENTS_PER_MERGE
    monkeypatch.setattr(segment_writer, "KEPT_BYTES", 1)
    SegmentWriter(store).compact()
    SegmentWriter(store).compact()
    (last,) = list_segments(store)
    assert last.last == 1000


def test_what_is_missing_between_listing_and_reading_is_looked_for_again() -> None:
    class Merging(MemoryStore):
        """Another one merges everything when the first segment is opened."""

        def read_range(self, path: str, offset: int, length: int) -> bytes:
            old = [segment.path for segment in list_segments(self)]
            if len(old) > 1:
                segment, data = build_segment([entry(number) for number in range(1, 6)], "f" * 16)
                self.create_if_absent(segment.path, data)
                self.delete_all(old)
            return super().read_range(path, offset, length)

    store = Merging()
    for number in range(1, 6):
        segment, data = build_segment([entry(number)], f"{number:016x}")
        store.create_if_absent(segment.path, data)
    assert numbers(History(store).page(None, 10)) == [5, 4, 3, 2, 1]


def test_damage_costs_its_own_segment_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    store = MemoryStore()
    written(store, 1, 10)
    victim = next(segment for segment in list_segments(store) if segment.first == 4)
    data = store.read(victim.path)
    store.delete(victim.path)
    store.create_if_absent(victim.path, data[:-10])
    store.create_if_absent("history/notes.txt", b"somebody's")
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(3):
            assert numbers(History(store).page(None, 20)) == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]  # the header is whole
            assert History(store).find(4) is None
    assert len([line for line in caplog.messages if victim.path in line]) == 1
    store.delete(victim.path)
    store.create_if_absent(victim.path, data[:100])
    assert numbers(History(store).page(None, 20)) == [10, 9, 8, 7, 6, 5, 3, 2, 1]
    keeper = SegmentWriter(store)
    for number in range(11, 100):
        keeper.append([entry(number)])
        keeper.compact()
    assert numbers(History(store).page(None, 200)) == [number for number in range(99, 0, -1) if number != 4]
    assert store.exists(victim.path), "it may be of a later release"


@given(st.data())
@settings(max_examples=some(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_changed_byte_or_a_cut_is_found_or_changes_nothing(data: st.DataObject) -> None:
    store = MemoryStore()
    checkpoints = data.draw(st.lists(st.integers(1, 1 << 53), min_size=1, max_size=4, unique=True))
    segment, content = build_segment([entry(number) for number in checkpoints], "0" * 16)
    if data.draw(st.booleans()):
        changed = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        at = data.draw(st.integers(0, len(content) - 1))
        changed = content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
    store.create_if_absent(segment.path, changed)
    try:
        opened = OpenSegment(store, segment)
        shown = {one.checkpoint: (one, opened.subtasks_of(one.checkpoint)) for one in opened.records}
    except CorruptSnapshot:
        return
    assert shown == {number: (record(number), tuple(captures(number))) for number in checkpoints}


def test_no_byte_of_the_figures_can_change() -> None:
    whole, content = build_segment([entry(8)], "0" * 16)
    for at in range(content.index(b"}\n") + 2, len(content)):
        store = MemoryStore()
        store.create_if_absent(whole.path, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CorruptSnapshot):
            OpenSegment(store, whole).subtasks_of(8)


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["go on", "new", "zombie"])), max_size=30), st.integers())
@settings(max_examples=some(40), deadline=None)
def test_writers_one_after_the_other_and_one_that_sleeps_lose_nothing(steps: list[tuple[int, str]], seed: int) -> None:
    """``zombie``: a writer before the last one goes on as if nothing had happened, merging included. Checkpoints end in
    any order, some much later than newer ones: segments overlap."""
    chance, store, token = random.Random(seed), MemoryStore(), tokens()
    writers, expected, in_flight, number = [SegmentWriter(store, token)], set[int](), list[int](), 0
    for count, who in steps * 3:
        if who == "new":
            writers.append(SegmentWriter(store, token))
        writer = chance.choice(writers) if who == "zombie" else writers[-1]
        in_flight += range(number + 1, number + count + 1)
        number += count
        batch = chance.sample(in_flight, chance.randint(1, len(in_flight)))
        in_flight = [one for one in in_flight if one not in batch]
        expected |= set(batch)
        writer.append([entry(one) for one in batch])
        writer.compact()
    assert numbers(History(store).page(None, 10_000)) == sorted(expected, reverse=True)
    paged: list[int] = []
    while page := numbers(History(store).page(paged[-1] if paged else None, 7)):
        paged += page
    assert paged == sorted(expected, reverse=True)


def test_the_longest_texts_fit_a_header() -> None:
    store = MemoryStore()
    worst = [record(number, reason="\x01" * MAX_REASON, label="\x01" * MAX_LABEL) for number in range(1, 1001)]
    segment, data = build_segment([StoredCheckpoint(one) for one in worst], "0" * 16)
    store.create_if_absent(segment.path, data)
    assert OpenSegment(store, segment).records == worst


def test_a_segment_is_opened_once_however_many_pages_lie_in_it() -> None:
    store = Meter()
    written(store, 1, 300)
    history = History(store)
    for before in (None, 280, 260, 240, 20):
        history.page(before, 50)
    store.looks.clear()
    for before in (None, 280, 260, 240, 20):
        assert numbers(history.page(before, 50)) == list(range((before or 301) - 1, 0, -1))[:50]
    assert not store.looks


def test_what_was_opened_is_not_shown_once_it_is_gone() -> None:
    store = MemoryStore()
    written(store, 1, 40)
    history = History(store)
    assert numbers(history.page(None, 50)) == list(range(40, 0, -1))
    store.delete_all([segment.path for segment in list_segments(store) if segment.first > 32])
    assert numbers(history.page(None, 50)) == list(range(32, 0, -1))
    written(store, 41, 41)
    assert numbers(history.page(None, 50)) == [41, *range(32, 0, -1)]
