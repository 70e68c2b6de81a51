"""Nexmark beside Spark and Flink: what the report makes of figures, and what Flink is given. Without Flink."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.lib.nexmark.generator import SCHEMA, events
from benchmarks.lib.nexmark.queries import NAMES
from benchmarks.peers.flink import blocks, nexmark
from benchmarks.reports import nexmark as report_nexmark

MACHINE = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def found(penstock: list[float], spark: list[float], flink: list[float] | None) -> dict[str, Any]:
    figures = {"penstock": penstock, "spark": spark} | ({} if flink is None else {"flink": flink})
    return {
        "rows": 7,
        "seconds": figures,
        "cpu_seconds": {name: [2 * one for one in own] for name, own in figures.items()},
    }


def test_ratios_are_of_rounds_and_their_mean_is_geometric_over_the_queries() -> None:
    queries = {"q0": found([1.0, 2.0, 4.0], [3.0, 4.0, 4.0], [8.0, 8.0, 8.0]), "q1": found([1.0], [8.0], [9.0])}
    assert report_nexmark.ratios(queries["q0"]["seconds"], "spark") == [3.0, 2.0, 1.0]
    assert report_nexmark.mean(queries, "seconds", "spark") == pytest.approx(4.0), "of 2 and 8"
    result = {"machine": MACHINE, "events": 100, "checked": 10, "spark_batch": 5, "flink": "2.3.0", "queries": queries}
    page = report_nexmark.nexmark(result)
    assert "## Nexmark: Flink, Penstock, Spark" in page
    assert "| q1 | 8.00 (once) | 9.00 (once) | 8.00 (once) | 9.00 (once) |" in page
    assert "| geometric mean | **4.00** | **6.00** | **4.00** | **6.00** |" in page
    assert "| target |  |  | 2, none under 1 | 4, none under 1 |" in page


def test_who_was_not_measured_is_not_shown() -> None:
    page = report_nexmark.nexmark({"machine": MACHINE, "events": 100, "queries": {"q0": found([1.0], [3.0], None)}})
    assert "| q0 | 3.00 (once) | 3.00 (once) |" in page
    assert "Not measured here: Flink." in page


def test_blocks_hold_every_value_of_the_events() -> None:
    made = events(10_000, 500)
    whole = b"".join(blocks.parts(made))
    assert Block(whole).events() == made.to_pylist()


class Block:
    """Reads one as ``EventBlock.java`` does."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def events(self) -> list[dict[str, Any]]:
        (count,) = self._ints(1)
        kinds = self._ints(count)
        rows = {name: iter(self._rows(SCHEMA.field(name).type)) for name in blocks.KINDS}
        times = self._column(pa.timestamp("us"), count)
        assert self._at == len(self._data)
        return [
            {
                "event_type": kind,
                **{name: next(rows[name]) if kind == own else None for name, own in blocks.KINDS.items()},
                "dateTime": time,
            }
            for kind, time in zip(kinds, times, strict=True)
        ]

    def _rows(self, kind: pa.StructType) -> list[dict[str, Any]]:
        (count,) = self._ints(1)
        names = [kind.field(number).name for number in range(kind.num_fields)]
        columns = [self._column(kind.field(number).type, count) for number in range(kind.num_fields)]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _column(self, kind: pa.DataType, count: int) -> list[Any]:
        if pa.types.is_string(kind):
            ends = self._ints(count + 1)
            text = self._take(ends[-1])
            return [text[first:end].decode() for first, end in itertools.pairwise(ends)]
        longs = [int.from_bytes(self._take(8), "little", signed=True) for _ in range(count)]
        return [EPOCH + timedelta(milliseconds=one) for one in longs] if pa.types.is_timestamp(kind) else longs

    def _ints(self, count: int) -> list[int]:
        return [int.from_bytes(self._take(4), "little", signed=True) for _ in range(count)]

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]


def test_the_job_reads_the_columns_that_blocks_have() -> None:
    source = (Path(nexmark.__file__).parent / "job" / "EventBlock.java").read_text()
    letters = {pa.string(): "s", pa.int64(): "l", pa.timestamp("us", tz="UTC"): "t"}
    expected = ["".join(letters[field.type] for field in SCHEMA.field(name).type) for name in blocks.KINDS]
    found = re.search(r"COLUMNS = \{(.*)\};", source)
    assert found is not None
    assert re.findall(r'"(\w+)"', found[1]) == expected


def test_flink_has_every_query_and_its_views_name_every_column() -> None:
    assert sorted(path.stem for path in nexmark.FOLDER.glob("*.sql")) == sorted(NAMES)
    for name, columns in nexmark.COLUMNS.items():
        kind = SCHEMA.field(name).type
        names = [
            "." if kind.field(number).name == "dateTime" else kind.field(number).name
            for number in range(kind.num_fields)
        ]
        assert columns.split() == names
    script = nexmark.script("q2", Path("/events"), 7, nexmark.NOWHERE)
    *views, last = script.split("\n;\n")
    assert "'blocks' = '7'" in views[0]
    assert "`dateTime`, events.bid.extra AS extra FROM events WHERE event_type = 2" in views[-1]
    assert last.startswith("CREATE TABLE output WITH ('connector' = 'blackhole') AS\nSELECT auction, price FROM bid")
