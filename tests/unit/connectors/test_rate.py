"""The rate source: Spark's values, reproducible timestamps."""

from __future__ import annotations

import pytest

from penstock.connectors.rate import RateSource, value_at
from penstock.errors import ConfigError
from tests.support.connectors.kits import discover_all, new_reader, rows_of, stored


def read_until(source: RateSource, now_offset_ms: int, max_rows: int = 7) -> list[tuple[int, int]]:
    """(milliseconds after the start, value) of every row due, reading both splits with one reader."""
    splits = discover_all(source, 2)
    reader = new_reader(source)
    for split in splits:
        reader.add_split(split)
    start_ms = int(str(splits[0].spec["start_ms"]))
    rows: list[tuple[int, int]] = []
    while (batch := reader.poll(max_rows, start_ms + now_offset_ms)) is not None:
        rows += [(timestamp // 1000 - start_ms, value) for timestamp, value in rows_of(batch)]
    return sorted(rows)


def test_values_appear_evenly_and_no_earlier_than_due() -> None:
    assert read_until(RateSource(4), 1999) == [(i * 250, i) for i in range(8)]
    assert read_until(RateSource(4), 0) == [(0, 0)]


def test_ramp_up_is_sparks() -> None:
    # The table in Spark's RateStreamProvider: 10 rows per second after 4 seconds.
    assert [value_at(s, 10, 4) for s in range(7)] == [0, 2, 6, 12, 20, 30, 40]
    rows = read_until(RateSource(10, ramp_up_s=4), 5_000)
    assert [sum(1 for ms, _ in rows if ms // 1000 == s) for s in range(5)] == [2, 4, 6, 8, 10]


def test_a_replay_yields_the_same_rows() -> None:
    source = RateSource(1000)
    splits = discover_all(source, 3)
    now_ms = int(str(splits[0].spec["start_ms"])) + 500

    def read(from_splits: list, polls: int) -> tuple[list, list]:
        reader = new_reader(source)
        for split in from_splits:
            reader.add_split(split)
        batches = [reader.poll(11, now_ms) for _ in range(polls)]
        return [row for b in batches if b is not None for row in rows_of(b)], [stored(s) for s in reader.snapshot()]

    everything, _ = read(splits, 1000)
    assert sorted(value for _, value in everything) == list(range(501))
    before, positions = read(splits, 20)
    after, _ = read(positions, 1000)
    assert len(before) == 220
    assert sorted(before + after) == sorted(everything)


def test_splits_are_found_once() -> None:
    source = RateSource(1)
    first = source.discover(None, 4)
    assert len(first.splits) == 4
    assert source.discover(first.state, 8).splits == ()


@pytest.mark.parametrize("asked", [1, 8])
def test_each_reader_gets_one_split_whatever_was_asked_for(asked: int) -> None:
    # A split never ends, so its reader never asks for another: one more would not be read by anybody, and a reader
    # without any would hold the watermark back for ever.
    splits = RateSource(10, num_partitions=asked).discover(None, 2).splits
    assert [split.spec["partition"] for split in splits] == [0, 1]
    start_ms = int(str(splits[0].spec["start_ms"]))
    values = []
    for split in splits:
        reader = new_reader(RateSource(10, num_partitions=asked))
        reader.add_split(stored(split))
        batch = reader.poll(100, start_ms + 1_000)
        assert batch is not None
        values += [value for _, value in rows_of(batch)]
    assert sorted(values) == list(range(11))


def test_impossible_rates_are_refused() -> None:
    with pytest.raises(ConfigError, match="rowsPerSecond=0"):
        RateSource(0)
    with pytest.raises(ConfigError, match="rampUpTime=-1"):
        RateSource(1, -1)
    with pytest.raises(ConfigError, match="numPartitions=0"):
        RateSource(1, 0, 0)


def test_a_frontier_is_the_rows_due_at_the_next_poll() -> None:
    source = RateSource(100)
    reader = new_reader(source)
    (split,) = discover_all(source, 1)
    reader.add_split(split)
    start_ms = int(str(split.spec["start_ms"]))
    reader.begin_frontier()
    assert not reader.frontier_passed(), "it is not known yet"
    for _ in range(10):
        assert not reader.frontier_passed()
        batch = reader.poll(10, start_ms + 995)
        assert batch is not None
    assert reader.frontier_passed()
    assert reader.poll(10, start_ms + 2_000) is not None
    reader.begin_frontier()
    assert not reader.frontier_passed(), "the new frontier is not known yet"
    assert reader.poll(10, start_ms + 2_000) is not None
    assert not reader.frontier_passed()
