"""Every aggregate function gives what it gives in Spark, over windows and keys, through a restore and two rescales."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.aggregates.aggregate_kit import SCHEMA, assert_same_rows, last_of_each, run, watermarked

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NUMBERS = ["d", "e", "cast(i as double)", "cast(dec as double)"]
VALUES = ["k", "b", "i", "l", "f", "d", "dec", "big", "text", "raw", "day", "ts", "st", "ar"]
SOME = ["k", "d", "big", "raw", "st", "ar"]
FAR = "timestamp_micros(253402300800000000 + l)"
"""Before and after the year 9999 ends."""
FAR_DAY = "date_from_unix_date(g * 10000000)"
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
    "percentiles": [
        *(f"percentile({value}, {PERCENTAGES})" for value in ("i", "l", "f", "d", "e", "dec", "big")),
        *(f"median({value})" for value in ("l", "d", "big", "ts - timestamp'2024-03-01'")),
        "percentile(ts - timestamp'2024-01-01', array(0.3, 0.77))",
        "percentile(l, 0.4, abs(i % 5))",
        "percentile(e, array(0.25, 0.5), g)",
        "percentile(dec, 0.31, 3)",
        f"percentile_cont({PERCENTAGES}) within group (order by d desc)",
        "percentile_cont(0.77) within group (order by g)",
        *(f"percentile_disc({PERCENTAGES}) within group (order by {value})" for value in ("i", "d desc", "big", "f")),
    ],
    "modes": [
        *(f"mode({value}, true)" for value in VALUES),
        *(f"mode() within group (order by {value} desc)" for value in VALUES),
        "mode() within group (order by text)",
        "mode(g, true) filter (where b)",
    ],
    "lists of text": [
        "listagg(text)",
        "string_agg(k, ', ')",
        "listagg(raw, X'00FF')",
        "string_agg(l, ',')",
        "listagg(text, ',') within group (order by text)",
        "listagg(raw) within group (order by raw desc)",
        "listagg(k, '-') within group (order by ts desc)",
        "string_agg(text, '|') within group (order by d desc nulls last, b nulls last, st desc, ar nulls first, ts)",
        "listagg(text, ',') within group (order by g desc nulls first, i)",
        "listagg(text, ',') filter (where i > 40)",
    ],
    "different texts": ["listagg(distinct i, ',') within group (order by i desc)", "count(i)"],
    "different values": ["percentile(distinct i, 0.3)", "max_by(distinct e, ts, 2)"],
    "the best rows": [
        *(f"{function}({value}, ts, 3)" for function in ("min_by", "max_by") for value in SOME),
        *(
            f"{function}(i, named_struct('v', {value}, 'at', ts), 4)"
            for function in ("min_by", "max_by")
            for value in VALUES
        ),
        "max_by(k, if(i > 0, ts, null), 2) filter (where b)",
        "min_by(l, ts, 100000)",
    ],
    "times that Python has no value for": [
        f"collect_list({FAR})",
        f"collect_list(named_struct('at', {FAR}, 'days', map(true, array({FAR_DAY}))))",
        f"array_sort(collect_set({FAR_DAY}))",
        f"mode({FAR}, true)",
        f"percentile_approx({FAR}, 0.5)",
        f"max_by(array({FAR}), ts)",
        f"max_by({FAR}, ts, 3)",
        f"min_by(named_struct('at', {FAR}, 'day', {FAR_DAY}), ts, 2)",
        f"listagg(text, ',') within group (order by {FAR}, ts)",
    ],
    "unions": [
        "array_size(collect_union(ar))",
        "array_size(collect_union(array(i, g)))",
        "array_size(collect_union(array(st)) filter (where i > 30))",
    ],
    "bitmaps": [
        "bitmap_construct_agg(bitmap_bit_position(i))",
        "bitmap_construct_agg(pmod(l, 32768))",
        "bitmap_or_agg(raw)",
        "bitmap_and_agg(raw)",
        "bitmap_and_agg(raw) filter (where i > 1000)",
        "bitmap_or_agg(cast(repeat(text, 3000) as binary))",
    ],
    "sketches of counts": [
        *(f"count_min_sketch({value}, 0.05d, 0.9d, 7)" for value in ("i", "l", "text", "raw", "cast(g as tinyint)")),
        "count_min_sketch(text, 0.3d, 0.99d, -12345) filter (where i > 30)",
    ],
    "lines": [
        *(
            f"{function}({pair})"
            for function in ("regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_syy", "regr_sxy")
            for pair in ("d, e", "e, d", "i, e")
        ),
        "regr_slope(e, g) filter (where b)",
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


@pytest.mark.one_in(2)
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
    functions = [function for name, group in GROUPS.items() if "different" not in name for function in group[::5]]
    chosen = ", ".join(f"{function} as r{number}" for number, function in enumerate(functions))

    def plan(df: DataFrame) -> DataFrame:
        return df.sparkSession.sql(f"select g, {chosen} from {{df}} group by g", df=df)

    expected = plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow()
    updates, _ = run(plan(spark.readStream.schema(SCHEMA).parquet(str(folder))), rows, "update")
    assert updates.num_rows > expected.num_rows
    assert_same_rows(last_of_each(updates, 1), expected, 1)
