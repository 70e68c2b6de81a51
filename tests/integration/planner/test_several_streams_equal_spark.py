"""The oracle for plans with several streams: Spark's batch result after a drain, and, with late rows, Structured
Streaming with one file per trigger, after every trigger."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.integration.planner.test_equals_spark import multiset
from tests.integration.planner.test_graph_shape import SINK
from tests.support.planner.compiled_query import compile_query
from tests.support.planner.tree_runner import TreeRunner
from tests.support.structured_streaming import structured_streaming

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEEDS = range(int(os.environ.get("PENSTOCK_JOIN_SEEDS", "1")))
"""More for a campaign: each seed makes other rows."""
SCHEMA = "k bigint, s string, x double, v int, at timestamp"
ARROW = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("x", pa.float64()),
        ("v", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
START = datetime(2024, 3, 30, 22, 0, tzinfo=UTC)
Plan = Callable[[list[DataFrame]], DataFrame]


def rows(
    random: np.random.Generator, count: int, first_s: float, last_s: float, jitter_s: float, null_keys: bool = True
) -> pa.Table:
    """Event times rise, but for a jitter; the keys are skewed, and everything holds nulls."""

    def nullable(values: Sequence[Any]) -> list[Any]:
        return [None if hole else value for value, hole in zip(values, random.random(count) < 0.06, strict=True)]

    seconds = np.linspace(first_s, last_s, count) + random.uniform(-jitter_s, jitter_s, count)
    keys = np.minimum(random.geometric(0.25, count), 9)
    columns = {
        "k": nullable(keys.tolist()) if null_keys else keys,
        "s": nullable(random.choice(["a", "b", "ß"], count).tolist()),
        "x": nullable(random.choice([0.0, -0.0, float("nan"), 1.5], count).tolist()),
        "v": nullable(random.integers(0, 9, count).tolist()),
        "at": nullable([START + timedelta(seconds=int(second)) for second in seconds]),
    }
    return pa.table(columns, schema=ARROW)


def timed(df: DataFrame, delay: str = "10 seconds") -> DataFrame:
    return df.withWatermark("at", delay)


def right(df: DataFrame, prefix: str = "r_") -> DataFrame:
    return timed(df, "6 seconds").select([F.col(name).alias(prefix + name) for name in df.columns])


def joined(condition: str, kind: str = "inner") -> Plan:
    return lambda dfs: timed(dfs[0]).join(right(dfs[1]), F.expr(condition), kind)


NEAR = "r_at BETWEEN at - INTERVAL 8 SECONDS AND at + INTERVAL 20 SECONDS"


def windowed(df: DataFrame, prefix: str) -> DataFrame:
    columns = [F.col("k").alias(f"{prefix}k"), F.window("at", "15 seconds").alias("w"), F.col("v").alias(f"{prefix}v")]
    return timed(df).select(columns)


def of_three(dfs: list[DataFrame]) -> DataFrame:
    two = joined(f"k = r_k AND {NEAR} AND v < r_v")(dfs)
    return two.join(right(dfs[2], "q_"), F.expr("k = q_k AND q_at BETWEEN r_at AND r_at + INTERVAL 5 SECONDS"))


def counted_pairs(dfs: list[DataFrame]) -> DataFrame:
    pairs = joined(f"k = r_k AND s = r_s AND {NEAR}")(dfs)
    return pairs.groupBy(F.window("at", "1 minute"), "k").agg(F.count("*").alias("n"), F.sum("r_v").alias("t"))


def in_sql(dfs: list[DataFrame]) -> DataFrame:
    for name, df in zip("abc", dfs, strict=True):
        timed(df).createOrReplaceTempView(f"stream_{name}")
    return dfs[0].sparkSession.sql(
        "WITH both AS (SELECT k, v, at FROM stream_a WHERE v > 1 UNION ALL SELECT k, -v, at FROM stream_b) "
        "SELECT l.k, l.v, r.s FROM both l LEFT JOIN stream_c r "
        "ON l.k = r.k AND r.at >= l.at AND r.at < l.at + INTERVAL 4 SECONDS"
    )


PLANS: dict[str, Plan] = {
    "inner": joined(f"k = r_k AND {NEAR} AND x < r_x"),
    "inner by several keys": joined("k + 1 = r_k + 1 AND upper(s) = upper(r_s) AND at = r_at"),
    "by arrays": joined(f"array(s, upper(s)) = array(r_s, r_s) AND {NEAR}"),
    "null-safe": joined(f"k <=> r_k AND x <=> r_x AND {NEAR}"),
    "left outer": joined(f"k = r_k AND {NEAR} AND v > 2 AND r_v < 7 AND v < r_v", "left"),
    "left outer by the times": joined(f"k = r_k AND {NEAR} AND v < r_v", "left"),
    "right outer": joined(f"k = r_k AND {NEAR} AND v > 2 AND r_v < 7", "right"),
    "full outer": joined(f"k = r_k AND {NEAR} AND v > 2 AND r_v < 7", "full"),
    "full outer null-safe": joined(f"s <=> r_s AND k = r_k AND {NEAR} AND v + r_v = 9", "full"),
    "full outer by the window": lambda dfs: windowed(dfs[0], "").join(windowed(dfs[1], "r_"), "w", "full"),
    "semi": joined(f"k = r_k AND {NEAR} AND v < r_v", "left_semi"),
    "semi by the time": joined("k = r_k AND at = r_at", "left_semi"),
    "with itself": lambda dfs: (
        timed(dfs[0]).alias("l").join(timed(dfs[0]).alias("r"), F.expr("l.k = r.k AND l.at = r.at"))
    ),
    "of three": of_three,
    "below an aggregation": counted_pairs,
    "union": lambda dfs: dfs[0].union(dfs[1]).where("v > 3").select("k", "x"),
    "union by name": lambda dfs: (
        dfs[0].drop("x").unionByName(dfs[1].select("at", "v", "s", "k"), allowMissingColumns=True)
    ),
    "union below an aggregation": lambda dfs: (
        timed(dfs[0].union(dfs[1]).union(dfs[2])).groupBy(F.window("at", "1 minute"), "k").count()
    ),
    "union of deduplicated": lambda dfs: (
        timed(dfs[0]).dropDuplicates(["k", "at"]).select("k").union(dfs[1].select("k"))
    ),
    "in SQL": in_sql,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [tmp_path_factory.mktemp(name) for name in "abc"]


def started(spark: SparkSession, folders: Sequence[Path], plan: Plan) -> TreeRunner:
    streams = [spark.readStream.schema(SCHEMA).parquet(str(folder)) for folder in folders]
    graph = compile_query(plan(streams), sink=SINK, output_mode="append", parallelism=1, max_parallelism=16)
    return TreeRunner(graph)


def inputs_of(runner: TreeRunner, folders: Sequence[Path]) -> list[tuple[int, pa.Schema]]:
    """Return, by source of the graph, the stream and the columns that are read."""
    found = []
    for vertex in runner.sources:
        source = runner._graph.vertex(vertex).source
        assert source is not None
        number = next(n for n, folder in enumerate(folders) if str(folder) in source.source.describe())
        found.append((number, source.source.schema))
    return found


def fed(runner: TreeRunner, source: int, schema: pa.Schema, table: pa.Table) -> None:
    for batch in table.select(schema.names).cast(schema).combine_chunks().to_batches():
        runner.feed(source, batch)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_drain_every_plan_gives_what_spark_gives_for_a_batch(
    spark: SparkSession, folders: list[Path], seed: int
) -> None:
    random = np.random.default_rng(seed)
    tables = [rows(random, 400, 0, 240, 2.5) for _ in folders]
    for folder, table in zip(folders, tables, strict=True):
        pq.write_table(table, folder / "all.parquet")
    for name, plan in PLANS.items():
        expected = plan([spark.read.schema(SCHEMA).parquet(str(folder)) for folder in folders]).toArrow()
        runner = started(spark, folders, plan)
        left = [(n, schema, tables[number]) for n, (number, schema) in enumerate(inputs_of(runner, folders))]
        while left:  # whoever comes next, by some rows
            at = int(random.integers(len(left)))
            source, schema, table = left.pop(at)
            many = int(random.integers(10, 60))
            fed(runner, source, schema, table.slice(0, many))
            if table.num_rows > many:
                left.insert(at, (source, schema, table.slice(many)))
        runner.drain()
        assert expected.num_rows > 10, name
        assert runner.table().schema.names == expected.schema.names, name
        assert multiset(runner.table()) == multiset(expected), name
        assert runner.counter("rows_dropped_late") == 0, name
        runner.close()


LATE = ("left outer by the times", "full outer by the window")
NOT_LATE = (
    "with itself",
    "in SQL",
    "of three",
    "left outer",
    "right outer",
    "full outer",
    "union below an aggregation",
)
"""Plans over one stream twice, over a third one, or with a watermark that the driver sees to; and joins with conditions
of one side, by which Structured Streaming keeps rows for ever."""


@pytest.fixture
def arrivals(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in "abc"]
    for folder in made:
        folder.mkdir()
    return made


def triggers(random: np.random.Generator) -> Iterator[tuple[int, pa.Table]]:
    """Files of both streams in turn, the later ones with rows from long ago among them. Without null keys, of which
    Structured Streaming waits for partners that cannot come."""
    for step in range(6):
        first = step // 2 * 15
        late = rows(random, 4, max(0, first - 60), first, 0, False)
        yield step % 2, pa.concat_tables([rows(random, 12, first, first + 15, 4, False), late])


@pytest.mark.parametrize("seed", SEEDS)
def test_after_every_trigger_it_is_what_structured_streaming_has_given(
    spark: SparkSession, arrivals: list[Path], seed: int
) -> None:
    streams = [spark.readStream.schema(SCHEMA).parquet(str(folder)) for folder in arrivals]
    names = LATE if len(SEEDS) == 1 else [name for name in PLANS if name not in NOT_LATE]
    with ExitStack() as stack:
        oracles, runners = [], []
        for number, name in enumerate(names):
            location = arrivals[0].parent / f"late_{number}"
            oracles.append(stack.enter_context(structured_streaming(PLANS[name](streams), location)))
            runners.append(started(spark, arrivals, PLANS[name]))
            stack.callback(runners[-1].close)
        for step, (number, table) in enumerate(triggers(np.random.default_rng(100 + seed))):
            pq.write_table(table, arrivals[number] / f"{step}.parquet")
            for oracle, runner, name in zip(oracles, runners, names, strict=True):
                oracle.go_on()
                for source, (which, schema) in enumerate(inputs_of(runner, arrivals)):
                    if which == number:
                        fed(runner, source, schema, table)
                got = multiset(runner.table()) if runner.output else Counter()
                assert got == multiset(oracle.table), (name, step)
        for oracle, runner, name in zip(oracles, runners, names, strict=True):
            assert runner.counter("rows_dropped_late") == oracle.late, name
            assert oracle.late > 0 or name not in LATE, name
