"""Every aggregate function gives what it gives in Spark, over windows and keys, through a restore and two rescales."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from aggregate_kit import SCHEMA, assert_same_rows, last_of_each, run, watermarked
from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NUMBERS = ["d", "e", "cast(i as double)", "cast(dec as double)"]
VALUES = ["k", "b", "i", "l", "f", "d", "dec", "big", "text", "raw", "day", "ts", "st", "ar"]
SOME = ["k", "d", "big", "raw", "st", "ar"]
PERCENTAGES = "array(0.0, 0.0001, 0.1, 0.5, 0.77, 1.0)"

GROUPS: dict[str, list[str]] = {
    "moments": [
        f"{function}({number})"
        for function in ("stddev_samp", "stddev_pop", "var_samp", "var_pop", "skewness", "kurtosis")
        for number in NUMBERS
    ],
    "two numbers": [
        f"{function}({pair})"
        for function in ("covar_samp", "covar_pop", "corr")
        for pair in ("d, e", "e, d", "i, e", "e, l")
    ],
    "one of the rows": [
        *(f"{function}({value})" for function in ("first", "last") for value in SOME),
        *(f"{function}({value}) ignore nulls" for function in ("first_value", "last_value") for value in SOME),
    ],
    "the best row": [
        *(f"{function}(ts, {value})" for function in ("min_by", "max_by") for value in VALUES),
        *(f"{function}({value}, ts)" for function in ("min_by", "max_by") for value in SOME),
    ],
    "least and largest": [f"{function}({value})" for function in ("min", "max") for value in VALUES],
    "logic and bits": [
        *(f"{function}(b)" for function in ("bool_and", "bool_or", "every", "some", "any", "count_if")),
        *(f"{function}({value})" for function in ("bit_and", "bit_or", "bit_xor") for value in ("i", "l")),
    ],
    "lists": [f"collect_list({value})" for value in [*SOME, "ts", "b"]],
    "sets": [f"array_size(collect_set({value}))" for value in VALUES],
    "distinct sketches": [
        *(f"approx_count_distinct({value})" for value in VALUES),
        *(f"approx_count_distinct(e, {error})" for error in (0.39, 0.01)),
    ],
    "quantiles": [
        *(f"percentile_approx({value}, {PERCENTAGES})" for value in ("i", "l", "f", "d", "dec", "day", "ts")),
        "approx_percentile(e, 0.25, 1000)",
    ],
    "sums": [
        *(
            f"{function}({value})"
            for function in ("try_sum", "try_avg")
            for value in ("i", "l", "f", "d", "dec", "big")
        ),
        "sum(ts - timestamp'2024-01-01')",
        "avg(ts - timestamp'2024-01-01')",
        "count(k, b, i)",
        "count(1, 2)",
    ],
    "filters": [
        "count(*) filter (where i > 0)",
        "count(k) filter (where b)",
        "sum(l) filter (where k is null)",
        "sum(100 div i) filter (where i <> 0)",
        "first(k) filter (where b)",
        "min(text) filter (where i > 0)",
        "collect_list(i) filter (where b)",
        "stddev(e) filter (where false)",
        "approx_count_distinct(i) filter (where i > 20)",
        "percentile_approx(i, 0.5) filter (where i > 40)",
        "max_by(k, ts) filter (where not b)",
        "bit_or(i) filter (where i = 3)",
        "corr(i, e) filter (where b)",
    ],
}


def plan_of(functions: list[str]) -> Callable[[DataFrame], DataFrame]:
    chosen = ", ".join(f"{function} as r{number}" for number, function in enumerate(functions))
    return lambda df: df.sparkSession.sql(
        f"select window(ts, '10 minutes') as w, k, {chosen} from {{df}} group by window(ts, '10 minutes'), k",
        df=watermarked(df),
    )


ANSI = [*((name, "true") for name in GROUPS), ("sums", "false")]


@pytest.mark.parametrize(("name", "ansi"), ANSI)
def test_windowed_results_equal_spark(
    spark: SparkSession, spark_conf: Callable[[str, str], None], folder: Path, rows: pa.Table, name: str, ansi: str
) -> None:
    spark_conf("spark.sql.ansi.enabled", ansi)
    plan = plan_of(GROUPS[name])
    expected = plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow()
    found, job = run(plan(spark.readStream.schema(SCHEMA).parquet(str(folder))), rows)
    assert_same_rows(found, expected, 2)
    assert job.late == 0


def test_the_last_updates_equal_spark(spark: SparkSession, folder: Path, rows: pa.Table) -> None:
    functions = [function for group in GROUPS.values() for function in group[::5]]
    chosen = ", ".join(f"{function} as r{number}" for number, function in enumerate(functions))

    def plan(df: DataFrame) -> DataFrame:
        return df.sparkSession.sql(f"select g, {chosen} from {{df}} group by g", df=df)

    expected = plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow()
    updates, _ = run(plan(spark.readStream.schema(SCHEMA).parquet(str(folder))), rows, "update")
    assert updates.num_rows > expected.num_rows
    assert_same_rows(last_of_each(updates, 1), expected, 1)
