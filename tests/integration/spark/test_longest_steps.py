"""The longest time between two polls of control messages, over inputs that make operators, sources and sinks work long.

Measured is the user CPU time of the subtask's own thread, so that a busy machine does not count. It is compared with a
fixed piece of work in the same run, so that a slow machine does not count. A step is meant to take two fifths of that
piece at most. The bound has room, and a step that a cut was taken out of lasts many times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from penstock.connectors.files.csv.sink import csv_sink_format
from penstock.connectors.files.json.sink import json_sink_format
from penstock.connectors.files.parquet.sink import parquet_sink_format
from penstock.connectors.files.sink import FileSink
from penstock.connectors.noop import NoopSink
from penstock.connectors.option_texts import OptionTexts
from penstock.model.job_graph import SinkSpec
from penstock.planner.static_join import read_static_sides
from tests.support.dataflow.stepping import Stepping, piece_of_work_s
from tests.support.planner.compiled_query import compile_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.base import Sink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BOUND = 2.0
"""How many pieces of work a step may last: five times what it is meant to."""
ATTEMPTS = 3
"""A step that takes long does so each time; a processor that was taken away or a cold cache does not."""

MANY = 200_000
MOMENT = pa.timestamp("us", tz="UTC")
DOCUMENT = '{"a":[' + ",".join(map(str, range(MANY))) + "]}"
LONG_TEXTS = pa.table({"s": [f"x{number}," * 100_000 for number in range(10, 18)]})


@dataclass
class Streams:
    """Makes streaming DataFrames of files below a folder."""

    spark: SparkSession
    folder: Path

    def of(self, table: pa.Table, name: str = "rows") -> DataFrame:
        path = self.folder / name
        path.mkdir(exist_ok=True)
        pq.write_table(table, path / "rows.parquet")
        return self.spark.readStream.schema(self.spark.read.parquet(str(path)).schema).parquet(str(path))

    def of_lines(self, kind: str, schema: str, *lines: str) -> DataFrame:
        path = self.folder / kind
        path.mkdir(exist_ok=True)
        (path / f"rows.{kind}").write_text("\n".join(lines))
        return self.spark.readStream.schema(schema).format(kind).load(str(path))


def lists(sizes: list[int]) -> pa.Table:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.table({"a": pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.arange(offsets[-1])))})


def zeros(rows: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.zeros(rows, np.int64)


def keys(rows: int) -> pa.Table:
    """Rows of one key."""
    return pa.table({"k": zeros(rows), "x": np.arange(rows)})


def at_seconds(seconds: np.ndarray) -> pa.Array:  # type: ignore[type-arg]
    return pa.array(seconds * 1_000_000, MOMENT)


def flat_map(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for value in batch.column(0).to_pylist():
            yield pa.record_batch({"v": pa.array(np.arange(MANY) + value)})


def hot_key(streams: Streams) -> DataFrame:
    """Rows that meet 200,000 others each."""
    left = streams.of(keys(MANY), "left")
    right = streams.of(pa.table({"j": zeros(10)}), "right")
    return left.join(right, F.expr("k = j"))


def static_hot_key(streams: Streams) -> DataFrame:
    static = streams.spark.range(MANY).select(F.lit(0).cast("bigint").alias("k"), "id")
    return streams.of(pa.table({"k": zeros(20)})).join(static, "k")


def merging_sessions(streams: Streams) -> DataFrame:
    """The second half of the rows joins the sessions of the first half to one."""
    seconds = np.concatenate([np.arange(0, 40_000, 2), np.arange(1, 40_000, 2)]) * 4
    table = pa.table({"k": zeros(len(seconds)), "at": at_seconds(seconds)})
    return streams.of(table).withWatermark("at", "10 days").groupBy("k", F.session_window("at", "5 seconds")).count()


def windows_that_close_at_once(streams: Streams) -> DataFrame:
    table = pa.table({"k": np.arange(MANY), "at": at_seconds(zeros(MANY))})
    return streams.of(table).withWatermark("at", "1 second").groupBy("k", F.window("at", "1 minute")).count()


Query = Callable[[Streams], "DataFrame"]
QUERIES: dict[str, Query] = {
    "explode": lambda s: s.of(lists([MANY] * 20)).select(F.explode("a")),
    "explode, the lists grow": lambda s: s.of(lists([1] * 300_000 + [MANY] * 20))
    .select(F.explode("a"))
    .select(F.concat(F.lit("n"), "col")),
    "explode of a sequence": lambda s: s.of(pa.table({"n": [MANY] * 40})).select(F.explode(F.expr("sequence(1, n)"))),
    "explode of a split": lambda s: s.of(LONG_TEXTS).select(F.explode(F.split("s", ","))),
    "flatMap": lambda s: s.of(pa.table({"v": np.arange(40)})).mapInArrow(flat_map, "v long").groupBy("v").count(),
    "hash of texts": lambda s: s.of(pa.table({"s": ["x1," * 200_000] * 3})).select(F.hash("s"), F.xxhash64("s")),
    "texts as keys": lambda s: s.of(LONG_TEXTS).groupBy("s").count(),
    "functions of texts": lambda s: s.of(LONG_TEXTS).select(F.upper("s"), F.reverse("s"), F.length("s"), F.md5("s")),
    "regular expressions": lambda s: s.of(LONG_TEXTS).selectExpr("regexp_replace(s, 'x(\\\\d)', '$1y')", "s rlike '9'"),
    "from_json": lambda s: s.of(pa.table({"s": [DOCUMENT] * 4})).select(F.from_json("s", "a array<bigint>")),
    "JSON lines": lambda s: s.of_lines("json", "s string", *['{"s":"' + "\\u00e9\\n" * 200_000 + '"}'] * 2),
    "CSV lines": lambda s: s.of_lines("csv", "s string, n int", *['"' + 'a\\"b' * 200_000 + '",1'] * 2),
    "3,000 columns": lambda s: s.of(pa.table({f"c{number}": [1, 2] for number in range(3_000)})),
    "deduplication": lambda s: s.of(pa.table({"v": np.arange(3 * MANY)})).dropDuplicates(["v"]),
    "hot key": hot_key,
    "hot key of a static side": static_hot_key,
    "sessions that merge": merging_sessions,
    "windows that close at once": windows_that_close_at_once,
    "collect_list": lambda s: s.of(keys(5 * MANY)).groupBy("k").agg(F.collect_list("x")),
    "collect_set": lambda s: s.of(keys(2 * MANY)).groupBy("k").agg(F.collect_set("x")),
    "sort": lambda s: s.of(pa.table({"k": np.arange(2 * MANY)[::-1].copy()})).groupBy("k").count().orderBy("k"),
}  # fmt: skip
MODES = {
    "flatMap": "update",
    "texts as keys": "update",
    "collect_list": "update",
    "collect_set": "update",
    "sort": "complete",
}


def longest_step(streams: Streams, df: DataFrame, sink: Sink, mode: str) -> float:
    """Return how many pieces of work it lasts."""
    graph = compile_query(df, sink=SinkSpec("sink", "sink", sink), output_mode=mode, parallelism=1, max_parallelism=128)
    read_static_sides(graph, 1 << 30)
    pieces: list[float] = []
    while len(pieces) < ATTEMPTS and min(pieces, default=BOUND) >= BOUND:
        committer = sink.create_committer()
        committer.open("q")
        stepping = Stepping(graph)
        stepping.run()
        assert stepping.checkpoints > 0
        stepping.close()
        committer.close()
        pieces.append(max(stepping.longest_s.values()) / piece_of_work_s())
    return min(pieces)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", QUERIES)
def test_no_step_of_an_operator_or_a_source_takes_long(streams: Streams, name: str) -> None:
    df = QUERIES[name](streams)
    assert longest_step(streams, df, NoopSink(), MODES.get(name, "append")) < BOUND


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_no_step_of_a_sink_takes_long(streams: Streams, kind: str) -> None:
    table = pa.table({"n": np.arange(2 * MANY), "s": [f"a text {number}" for number in range(2 * MANY)]})
    options = OptionTexts(f"{kind} sink", {})
    file_format = {
        "parquet": lambda: parquet_sink_format(table.schema, options),
        "csv": lambda: csv_sink_format(table.schema, options, "UTC"),
        "json": lambda: json_sink_format(table.schema, options, "UTC", True),
    }[kind]()
    sink = FileSink(str(streams.folder / "out"), file_format)
    assert longest_step(streams, streams.of(table), sink, "append") < BOUND
