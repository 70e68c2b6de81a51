"""mapInArrow and mapInPandas: epochs, schema checks, errors; and what Spark makes of the same functions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from penstock.errors import FunctionError
from penstock.operators.python.map_function import MapInArrowSpec, MapInPandasSpec
from penstock.operators.python.user_code import PythonSettings
from tests.support.operators.harness import UTC_STAMP, multiset, opened, rows_of, run, slices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("at", UTC_STAMP), ("s", pa.string())])
START = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
BATCH = pa.RecordBatch.from_pydict(
    {
        "k": [1, 2, None, 4, 5],
        "at": [START, None, START + dt.timedelta(days=200), START, START],
        "s": ["a", "b", None, "", "ü"],
    },
    schema=SCHEMA,
)


def in_arrow(function: Callable[..., Any], output: pa.Schema = SCHEMA, zone: str = "UTC") -> MapInArrowSpec:
    return MapInArrowSpec(
        operator_id="map-1",
        name="MapInArrow f",
        output_schema=output,
        input_schema=SCHEMA,
        function=function,
        settings=PythonSettings(time_zone=zone),
    )


def in_pandas(function: Callable[..., Any], output: pa.Schema = SCHEMA, zone: str = "UTC") -> MapInPandasSpec:
    return MapInPandasSpec(
        operator_id="map-2",
        name="MapInPandas f",
        output_schema=output,
        input_schema=SCHEMA,
        function=function,
        settings=PythonSettings(time_zone=zone),
    )


def same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def counted(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    rows = [len(batch) for batch in batches]
    yield pa.RecordBatch.from_pydict({"batches": [len(rows)], "rows": [sum(rows)]})


COUNTED = pa.schema([("batches", pa.int64()), ("rows", pa.int64())])


@pytest.mark.parametrize("make", [in_arrow, in_pandas])
def test_rows_pass_unchanged(make: Callable[..., Any]) -> None:
    out = list(run(opened(make(same)), slices(BATCH, 2)))
    assert [batch.schema for batch in out] == [SCHEMA] * 3
    assert multiset(rows_of(out)) == multiset(BATCH.to_pylist())


@pytest.mark.parametrize("make", [in_arrow, in_pandas])
def test_batches_have_at_most_the_sessions_rows(make: Callable[..., Any]) -> None:
    sizes = []

    def sized(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            sizes.append(len(batch))
            yield batch

    limited = replace(make(sized), settings=PythonSettings(batch_rows=2))
    assert multiset(rows_of(run(opened(limited), [BATCH]))) == multiset(BATCH.to_pylist())
    assert sizes == [2, 2, 1]


def test_one_call_per_epoch_ended_before_the_barrier() -> None:
    operator = opened(in_arrow(counted, COUNTED))
    assert rows_of(run(operator, slices(BATCH, 2))) == [{"batches": 3, "rows": 5}]
    assert rows_of(run(operator, [])) == []
    assert rows_of(run(operator, slices(BATCH, 5))) == [{"batches": 1, "rows": 5}]


def test_empty_outputs_are_not_yielded() -> None:
    operator = opened(in_arrow(lambda batches: (batch.slice(0, 0) for batch in batches)))
    assert list(run(operator, [BATCH])) == []
    operator = opened(in_pandas(lambda frames: (pd.DataFrame() for _ in frames)))
    assert list(run(operator, [BATCH])) == []


def test_columns_are_matched_by_name() -> None:
    operator = opened(in_arrow(lambda batches: (batch.select(["s", "k", "at"]) for batch in batches)))
    assert rows_of(run(operator, [BATCH])) == BATCH.to_pylist()
    operator = opened(in_pandas(lambda frames: (frame[["s", "at", "k"]] for frame in frames)))
    assert multiset(rows_of(run(operator, [BATCH]))) == multiset(BATCH.to_pylist())


@pytest.mark.parametrize("make", [in_arrow, in_pandas])
def test_functions_see_the_sessions_time_zone(make: Callable[..., Any]) -> None:
    seen: list[Any] = []

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            seen.append(batch.schema.field("at").type.tz if isinstance(batch, pa.RecordBatch) else batch["at"][0])
            yield batch

    out = rows_of(run(opened(make(look, zone="America/New_York")), [BATCH]))
    assert seen == ["America/New_York" if make is in_arrow else pd.Timestamp(2024, 7, 1, 8)]
    assert multiset(out) == multiset(BATCH.to_pylist()), "and back to the same instants"


def raises(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch
        raise ZeroDivisionError("by the user")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (in_arrow(raises), "ZeroDivisionError: by the user"),
        (in_pandas(raises), "ZeroDivisionError: by the user"),
        (in_arrow(lambda batches: (5 for _ in batches)), "mapInArrow must yield pyarrow.RecordBatch, not int"),
        (in_pandas(lambda batches: (5 for _ in batches)), "mapInPandas must yield pandas.DataFrame, not int"),
        (in_arrow(lambda batches: 5), "not iterable"),
        (in_arrow(lambda batches: (b.select(["k", "s"]) for b in batches)), "yielded columns ['k', 's'], declared are"),
        (in_pandas(lambda frames: (f[["k", "s"]] for f in frames)), "yielded columns ['k', 's'], declared are"),
        (
            in_arrow(lambda batches: (b.set_column(0, "k", b["k"].cast(pa.int32())) for b in batches)),
            "TypeError: column k was yielded as int32, declared is int64",
        ),
    ],
)  # fmt: skip
def test_errors_name_the_operator_and_what_is_wrong(spec: Any, message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        list(run(opened(spec), [BATCH]))
    assert message in caught.value.message
    assert caught.value.operator == f"{spec.operator_id} ({spec.name})"


def test_the_traceback_shows_the_users_line() -> None:
    with pytest.raises(FunctionError) as caught:
        list(run(opened(in_arrow(raises)), [BATCH]))
    assert 'raise ZeroDivisionError("by the user")' in caught.value.user_traceback


def test_close_ends_a_call_in_progress() -> None:
    story: list[str] = []

    def careful(batches: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from batches
        finally:
            story.append("closed")

    operator = opened(in_arrow(careful))
    list(operator.process(BATCH))
    operator.close()
    assert story == ["closed"]


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_spark_gives_the_same(spark: SparkSession, spark_conf: Callable[[str, str], None], zone: str) -> None:
    def stretch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.concat_batches([batch, batch.slice(0, 1)])

    def shift(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            later = frame["at"] + pd.Timedelta(hours=1)
            yield pd.DataFrame({"s": frame["s"], "at": later, "k": frame["k"], "extra": 1})

    spark_conf("spark.sql.session.timeZone", zone)
    frame = spark.createDataFrame(pa.table(BATCH)).coalesce(1)
    for make, function, theirs in (
        (in_arrow, stretch, frame.mapInArrow(stretch, frame.schema)),
        (in_pandas, shift, frame.mapInPandas(shift, frame.schema)),
    ):
        expected = theirs.toArrow().cast(SCHEMA).to_pylist()
        assert multiset(rows_of(run(opened(make(function, zone=zone)), slices(BATCH, 5)))) == multiset(expected)
        assert len(expected) >= 5
