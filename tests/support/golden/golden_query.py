"""The query of the golden snapshots: what later releases have to go on with. It never changes; see tests/golden.

Files -> watermark -> partial aggregation -> hash edge -> (slow) -> aggregation by time and key -> files, exactly the
operators that a DataFrame gives. What comes out is known from what goes in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.parquet.sink import parquet_sink_format
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.option_texts import OptionTexts
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.operators.aggregate.calls import AggregateCall, partial_schema
from penstock.operators.aggregate.final import EventTimeKey, FinalAggregateSpec
from penstock.operators.aggregate.partial import PartialAggregateSpec
from penstock.operators.base import Operator
from penstock.operators.watermark import WatermarkSpec

FILES, ROWS_PER_FILE, KEYS = 40, 20, 10
STEP_ROWS = 20
"""Rows of one moment."""
DELAY_S = 60
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
STAMP = pa.timestamp("us", "UTC")
EVENTS = pa.schema([("at", STAMP), ("key", pa.string()), ("value", pa.int64())])
RESULT = pa.schema([("at", STAMP), ("key", pa.string()), ("rows", pa.int64()), ("sum", pa.int64())])


def events() -> Iterator[tuple[datetime, str, int]]:
    for number in range(FILES * ROWS_PER_FILE):
        yield BEGIN + timedelta(seconds=10 * (number // STEP_ROWS)), f"key {number * 7 % KEYS}", number


def write_input(folder: Path) -> None:
    """Bytes and times are the same for ever: splits name them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{at:%Y-%m-%dT%H:%M:%SZ},{key},{value}\n" for at, key, value in events()]
    for number in range(FILES):
        path = folder / f"part-{number:03d}.csv"
        path.write_text("".join(lines[number * ROWS_PER_FILE : (number + 1) * ROWS_PER_FILE]))
        os.utime(path, ns=(1_700_000_000_000_000_000 + number * 10**9,) * 2)


def expected() -> list[dict[str, Any]]:
    """Return the expected rows for all times that the watermark has passed after the whole input."""
    found: dict[tuple[datetime, str], list[int]] = {}
    for at, key, value in events():
        found.setdefault((at, key), []).append(value)
    last = max(at for at, _, _ in events()) - timedelta(seconds=DELAY_S)
    rows = [{"at": at, "key": key, "rows": len(v), "sum": sum(v)} for (at, key), v in found.items() if at <= last]
    return sorted(rows, key=lambda row: (row["at"], row["key"]))


def output(folder: Path) -> list[dict[str, Any]]:
    """Return the visible output."""
    files = sorted(folder.glob("part-*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: (row["at"], row["key"]))


@dataclass(frozen=True)
class SlowSpec(OperatorSpec):
    """Passes everything on; while ``file`` exists, a row takes as many microseconds as that says."""

    operator_id: str
    file: str
    output_schema: pa.Schema
    name: str = "Slow"

    def create(self) -> Operator:
        return Slow(self)


class Slow(Operator):
    def __init__(self, spec: SlowSpec) -> None:
        self._spec = spec

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        path = Path(self._spec.file)
        if path.exists():
            time.sleep(batch.num_rows * float(path.read_text() or 0) / 1e6)
        yield batch


def golden_graph(folder: Path, parallelism: int) -> JobGraph:
    """Reads ``folder/input``, writes ``folder/output``, is slow by ``folder/slow`` and ``folder/slower``."""
    calls = (
        AggregateCall("count_star", 0, pa.null(), pa.int64()),
        AggregateCall("sum", 2, pa.int64(), pa.int64()),
    )
    partial = partial_schema(EVENTS, (0, 1), calls)
    source = FileSource(
        "csv", str(folder / "input"), EVENTS, {"fileNameOnly": "true", "maxFilesPerTrigger": "4"}, "UTC"
    )
    sink = FileSink(str(folder / "output"), parquet_sink_format(RESULT, OptionTexts("parquet sink", {})))
    read = (
        SlowSpec("slow-0", str(folder / "slow"), EVENTS),
        WatermarkSpec(
            operator_id="watermark-0",
            name="EventTimeWatermark",
            output_schema=EVENTS,
            column=0,
            delay_us=DELAY_S * 1_000_000,
        ),
        PartialAggregateSpec(
            operator_id="partial-0", name="PartialAggregate", output_schema=partial, key_columns=(0, 1), calls=calls
        ),
    )
    count = (
        SlowSpec("slow-1", str(folder / "slower"), partial),
        FinalAggregateSpec(
            operator_id="aggregate-0",
            name="Aggregate",
            output_schema=RESULT,
            input_schema=partial,
            key_count=2,
            calls=calls,
            mode="append",
            event_time=EventTimeKey(0),
        ),
    )
    return JobGraph(
        (
            Vertex(0, "read", SourceSpec("source-0", source.describe(), source), read, None),
            Vertex(1, "count", None, count, SinkSpec("sink-0", "Files", sink)),
        ),
        (Edge(0, 0, 1, EdgeKind.HASH, partial, (0, 1), exchange_id="exchange-0"),),
        parallelism,
        128,
    )
