"""Nexmark's queries give what Spark gives for the same SQL as a batch; and the generator replays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.lib.nexmark.generator import AUCTION, BID, PERSON, SPARK_SCHEMA, events, write_parquet
from benchmarks.lib.nexmark.queries import NAMES, query
from penstock.queries.streaming_query import StreamingQuery

pytestmark = pytest.mark.slow

COUNT = 20_000
IN_CI = [name for name in NAMES if name not in ("q0", "q1", "q2", "q12", "q14", "q22")]
"""The others are filters, projections and a count by windows; ``python -m benchmarks nexmark`` compares all."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark")
    write_parquet(folder, COUNT, 4)
    return folder


def test_an_event_is_the_same_in_every_batch_and_another_seed_makes_other_ones() -> None:
    whole = pa.Table.from_batches([events(0, 1_000)])
    parts = pa.Table.from_batches([events(first, 125) for first in range(0, 1_000, 125)])
    assert parts.combine_chunks() == whole
    assert pa.Table.from_batches([events(0, 1_000, seed=1)]) != whole


def test_events_have_nexmarks_proportions_and_hot_ratios() -> None:
    made = events(100_000, 50_000)
    kinds = made.column("event_type").to_pylist()
    assert [kinds.count(kind) for kind in (PERSON, AUCTION, BID)] == [1_000, 3_000, 46_000]
    for name, kind in (("person", PERSON), ("auction", AUCTION), ("bid", BID)):
        assert [value is not None for value in made.column(name).to_pylist()] == [one == kind for one in kinds]
    bids = [bid for bid in made.column("bid").to_pylist() if bid is not None]
    auctions = [auction for auction in made.column("auction").to_pylist() if auction is not None]
    assert [auction["id"] for auction in auctions] == list(range(7_000, 10_000))
    shares = (
        sum(bid["auction"] % 100 == 0 for bid in bids) / len(bids),
        sum(bid["bidder"] % 100 == 1 for bid in bids) / len(bids),
        sum(auction["seller"] % 100 == 0 for auction in auctions) / len(auctions),
    )
    assert shares == pytest.approx((0.5, 0.75, 0.75), abs=0.03)
    assert all(auction["expires"] > auction["dateTime"] for auction in auctions)


@pytest.mark.one_in(2)
@pytest.mark.spark
@pytest.mark.parametrize("name", IN_CI)
def test_a_query_equals_spark_batch(
    spark: SparkSession, start: Callable[..., StreamingQuery], folder: Path, out: Path, name: str
) -> None:
    stream = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    started = start(query(spark, stream, name), parallelism=2)
    started.processAllAvailable()
    started.stop(drain=True)
    expected = query(spark, spark.read.schema(SPARK_SCHEMA).parquet(str(folder)), name)
    written = spark.read.schema(expected.schema).parquet(str(out))
    assert expected.count() > 0
    assert_same(written, expected)


def assert_same(one: DataFrame, other: DataFrame) -> None:
    """Compare tables as multisets of rows."""
    assert one.exceptAll(other).take(3) == []
    assert other.exceptAll(one).take(3) == []
