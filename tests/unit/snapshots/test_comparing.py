"""Comparison of two snapshots, through chains, key groups and parallelism."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CorruptSnapshot
from penstock.model.splits import Split
from penstock.snapshots.commands import comparing
from penstock.snapshots.commands.comparing import SnapshotDiff, compare_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.table_rows import column_codes, combine_codes
from penstock.snapshots.format.table_entries import split_key_groups, table_entries
from tests.support.snapshots.location_kit import GROUPS, Kept
from tests.support.snapshots.snapshot_kit import COUNT


def diff(location: Path, before: int, after: int, examples: int = 0) -> SnapshotDiff:
    opened = open_location_to_read(str(location))
    return compare_snapshots(opened, opened.record(str(before)), opened.record(str(after)), examples)


def changes(before: dict[int, int], after: dict[int, int]) -> tuple[int, int, int]:
    both = before.keys() & after.keys()
    return (
        len(after.keys() - before.keys()),
        sum(before[k] != after[k] for k in both),
        len(before.keys() - after.keys()),
    )


@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_pair_of_snapshots_differs_by_what_was_written(
    tmp_path: Path, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, chance = Kept(tmp_path, parallelism), random.Random(parallelism)
    seen: dict[int, dict[int, int]] = {}
    kept.put(dict.fromkeys(range(900), 0))
    for round_ in range(5):
        kept.put({chance.randrange(1200): round_ % 3 for _ in range(60)}, tuple(chance.sample(range(1200), 20)))
        seen[kept.snapshot()] = dict(kept.content)
    opened = open_location_to_read(str(tmp_path))
    entries = table_entries(opened.metadata(opened.view.snapshots[-1]))[COUNT, "counts"]
    assert any(entry.kind == "delta" for entry in entries), "what is compared is a chain"
    few = 40_000
    assert len(list(split_key_groups(entries, (0, GROUPS - 1), few))) > 3
    monkeypatch.setattr(comparing, "RANGE_BYTES", few)
    ids = list(seen)
    for one, other in [(ids[0], ids[-1]), (ids[-1], ids[0]), (ids[1], ids[3]), (ids[3], ids[4]), (ids[2], ids[2])]:
        (table,) = diff(tmp_path, one, other).tables
        assert (table.added, table.changed, table.removed) == changes(seen[one], seen[other]), f"{one} -> {other}"
        assert (table.problem, table.operator_id, table.table) == ("", COUNT, "counts")


def test_examples_have_keys_and_values_of_both(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put({1: 10, 2: 20, 3: 30})
    one = kept.snapshot()
    kept.put({2: 21, 4: 40}, removed=(3,))
    other = kept.snapshot()
    (table,) = diff(tmp_path, one, other, examples=5).tables
    assert table.keys == ["key"]
    found = {row.change: (row.key, row.before, row.after) for row in table.examples}
    assert found == {
        "added": ({"key": 4}, None, {"count": 40}),
        "changed": ({"key": 2}, {"count": 20}, {"count": 21}),
        "removed": ({"key": 3}, {"count": 30}, None),
    }
    assert not diff(tmp_path, one, other).tables[0].examples


def test_another_parallelism_is_no_change(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1)
    kept.put({key: key for key in range(500)})
    one = kept.snapshot()
    wider = Kept(tmp_path, 3)
    wider.put({key: key for key in range(500)})
    wider.put({7: 8})
    other = wider.snapshot()
    found = diff(tmp_path, one, other)
    assert (found.parallelism_before, found.parallelism_after) == (1, 3)
    assert [(t.added, t.changed, t.removed) for t in found.tables] == [(0, 1, 0)]


def test_key_groups_that_both_refer_to_alike_are_not_read(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put({key: key for key in range(500)})
    one, other = kept.snapshot(), kept.snapshot()
    for path in (tmp_path / "data").iterdir():
        path.write_bytes(b"not to be read")
    assert [(t.added, t.changed, t.removed) for t in diff(tmp_path, one, other).tables] == [(0, 0, 0)]


def test_splits_positions_watermarks_and_rows_in_flight_are_compared(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    gone, moved = Split("a", {"n": 1}, {"rows": 5}), Split("b", {"n": 2})
    one = kept.snapshot(watermark=1_000_000, splits=[gone, moved], in_flight=3)
    other = kept.snapshot(watermark=2_000_000, splits=[Split("b", {"n": 2}, {"rows": 9}), Split("c", {"n": 3})])
    found = diff(tmp_path, one, other)
    (source,) = found.sources
    assert {(s.split_id, s.change) for s in source.splits} == {("a", "finished"), ("b", "moved"), ("c", "found")}
    assert (source.found, source.finished, source.moved) == (1, 1, 1)
    (edge,) = found.edges
    assert (edge.watermark_us_before, edge.watermark_us_after) == (1_000_000, 2_000_000)
    assert (edge.rows_before, edge.rows_after) == (3, 0)
    assert edge.text == "NoSource (source-1) -> Count (count-1) + NoSink (sink-1)"


def test_a_damaged_section_is_named(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put({1: 1})
    one = kept.snapshot()
    kept.put({1: 2})
    other = kept.snapshot()
    path = next((tmp_path / "data").glob(f"1-{other}-0-state.arrows"))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptSnapshot, match=rf"chk-{one} or chk-{other} is damaged.*{path.name}.*verify"):
        diff(tmp_path, one, other)


@pytest.mark.parametrize(
    ("values", "same"),
    [
        (pa.array([1.5, float("nan"), float("nan"), None, None, 1.5]), [(0, 5), (1, 2), (3, 4)]),
        (pa.array(["a", None, "b", "a"]), [(0, 3)]),
        (pa.array([{"x": 1, "y": None}, None, {"x": 1, "y": None}, {"x": None, "y": None}]), [(0, 2)]),
        (pa.array([[1, 2], [1], None, [1, 2], []]), [(0, 3)]),
        (pa.array([b"\0", b"\0", b""]), [(0, 1)]),
        (pa.array([[2**60], [2**61], [2**60]], pa.list_(pa.timestamp("us"))), [(0, 2)]),
        (pa.array([None, None]), [(0, 1)]),
    ],
)
def test_codes_are_equal_where_values_are(values: pa.Array, same: list[tuple[int, int]]) -> None:
    codes = combine_codes([column_codes(values)], len(values))
    found = [(i, j) for i in range(len(values)) for j in range(i + 1, len(values)) if codes[i] == codes[j]]
    assert found == same
    assert combine_codes([], 3).tolist() == [0, 0, 0], "a table without keys has one row"
    assert np.array_equal(combine_codes([codes, codes], len(values)), codes) or len(set(codes)) == len(set(found))
