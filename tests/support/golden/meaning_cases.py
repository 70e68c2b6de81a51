"""Queries with state, and changes of each of their parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules

Build = Callable[[DataFrame], DataFrame]


def same(column: str) -> Column:
    """Group by a function of the user."""
    return F.udf(lambda value: value, "bigint")(column)


@dataclass(frozen=True)
class Change:
    """Another plan at a location. ``refused``: text of the error; empty if the query continues."""

    build: Build
    refused: str = ""
    mode: str = ""
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    mode: str
    build: Build
    changes: dict[str, Change]


def late(df: DataFrame, delay: str = "10 seconds", column: str = "at") -> DataFrame:
    return df.withWatermark(column, delay)


def windowed(*keys: str, value: str = "sum(value)", delay: str = "10 seconds") -> Build:
    return lambda df: late(df, delay).groupBy(*map(F.expr, keys)).agg(F.expr(value).alias("total"))


WINDOW = "window(at, '10 minutes')"


def joined(condition: str = "l.key = r.key", how: str = "inner", left: str = "key", delay: str = "10 seconds") -> Build:
    def build(df: DataFrame) -> DataFrame:
        one = late(df.withColumn("key", F.expr(left)), delay).alias("l")
        other = late(df.select("key", F.col("at"), F.col("value").alias("w")), delay).alias("r")
        return one.join(other, F.expr(condition), how).select("l.key", "l.value", "r.w")

    return build


def joined_twice(key: str) -> Build:
    def build(df: DataFrame) -> DataFrame:
        third = late(df.select(F.col(key).alias("k"), "at")).alias("s")
        return joined()(df).join(third, F.expr("w = s.k")).select("w")

    return build


def literal_key(number: int) -> Build:
    def build(df: DataFrame) -> DataFrame:
        one = late(df.withColumn("j", F.lit(number).cast("bigint"))).alias("l")
        other = late(df.select("key", "at", F.col("value").alias("w"))).alias("r")
        return one.join(other, F.expr("l.j = r.w AND r.at >= l.at AND r.at <= l.at + interval 5 minutes")).select("w")

    return build


RANGE = "l.key = r.key AND r.at >= l.at AND r.at <= l.at + interval 5 minutes"


class Last(StatefulProcessor):
    """Processor that keeps the last value of a key."""

    ttl_ms: int | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.value = handle.getValueState("value", "value bigint", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        for frame in rows:
            self.value.update((int(frame["value"].iloc[-1]),))
        yield pd.DataFrame({"key": [int(key[0])]})

    def close(self) -> None: ...


def processed(key: str = "key", time_mode: str = "ProcessingTime", ttl_ms: int | None = None) -> Build:
    processor = Last()
    processor.ttl_ms = ttl_ms

    def build(df: DataFrame) -> DataFrame:
        grouped = late(df).withColumn("group", F.expr(key)).groupBy("group")
        return grouped.transformWithStateInPandas(processor, "key bigint", "update", time_mode)

    return build


def mode_of(processor_mode: str) -> Build:
    def build(df: DataFrame) -> DataFrame:
        grouped = late(df).withColumn("group", F.col("key")).groupBy("group")
        return grouped.transformWithStateInPandas(Last(), "key bigint", processor_mode, "ProcessingTime")

    return build


def with_state(timeout: str = "NoTimeout", mode: str = "update", key: str = "key") -> Build:
    def count(group: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"n": [total]})

    def build(df: DataFrame) -> DataFrame:
        grouped = late(df).withColumn("group", F.expr(key)).groupBy("group")
        return grouped.applyInPandasWithState(count, "n long", "n long", mode, getattr(GroupStateTimeout, timeout))

    return build


def functions(**changed: str) -> Build:
    """Several functions over a group, of which those of some columns are others."""
    texts = {
        "a": "sum(value)",
        "b": "sum(key + value)",
        "c": "sum(key) filter (where value > 1)",
        "d": "sum(key) filter (where value > 2)",
        "p": "percentile_approx(value, 0.5, 100)",
        "n": "approx_count_distinct(value, 0.05)",
    } | changed
    return lambda df: df.groupBy("key").agg(*(F.expr(text).alias(name) for name, text in texts.items()))


def by_lambda_and_function(added: int, column: str) -> Build:
    def build(df: DataFrame) -> DataFrame:
        numbers = F.transform(F.array("key"), lambda x: x + added)
        return df.groupBy(numbers.alias("k"), same(column).alias("u")).count()

    return build


def counted(*keys: str) -> Build:
    return lambda df: df.groupBy(*map(F.expr, keys)).count()


NEW_YORK, TOKYO = "America/New_York", "Asia/Tokyo"
ZONE = "spark.sql.session.timeZone"

CASES: dict[str, Case] = {
    "windows": Case(
        "append",
        windowed(WINDOW, "key"),
        {
            "length": Change(
                windowed("window(at, '5 minutes')", "key"),
                r"key 1 of aggregate-0: stored window\(at, 10 minutes, 10 minutes, 0 microseconds\), "
                r"now window\(at, 5 minutes, 5 minutes",
            ),
            "slide": Change(
                windowed("window(at, '10 minutes', '5 minutes')", "key"),
                r"key 1 of aggregate-0: .*, now window\(at, 10 minutes, 5 minutes, 0 microseconds\)",
            ),
            "start": Change(
                windowed("window(at, '10 minutes', '10 minutes', '1 minute')", "key"),
                r"key 1 of aggregate-0: .*, now window\(at, 10 minutes, 10 minutes, 1 minute\)",
            ),
            "key": Change(
                windowed(WINDOW, "key % 3 as key"),
                r"key 2 of aggregate-0: stored key, now \(key % 3\)",
            ),
            "key computed below": Change(
                lambda df: windowed(WINDOW, "key")(df.withColumn("key", F.col("value"))),
                r"key 2 of aggregate-0: stored key, now value",
            ),
            "key by a literal": Change(
                lambda df: windowed(WINDOW, "key")(df.withColumn("key", F.col("key") + F.lit(1))),
                r"key 2 of aggregate-0: stored key, now \(key \+ 1\)",
            ),
            "argument": Change(
                windowed(WINDOW, "key", value="sum(key)"),
                r"function 1 of aggregate-0: stored sum\({value}\), now sum\({key}\)",
            ),
            "event time": Change(
                lambda df: windowed(WINDOW, "key")(df.withColumn("at", F.timestamp_seconds("value"))),
                r"event time of watermark-0: stored {at}, now {value}",
            ),
            "mode": Change(windowed(WINDOW, "key"), "output mode of aggregate-0: stored append", mode="update"),
            "complete": Change(
                windowed(WINDOW, "key"),
                "output mode of aggregate-0: stored append",
                mode="complete",
            ),
            "delay": Change(windowed(WINDOW, "key", delay="1 second")),
            "longer delay": Change(windowed(WINDOW, "key", delay="1 hour")),
            "function of the argument": Change(windowed(WINDOW, "key", value="sum(value * 2)")),
            "ansi": Change(windowed(WINDOW, "key"), conf={"spark.sql.ansi.enabled": "false"}),
            "zone": Change(windowed(WINDOW, "key"), conf={ZONE: TOKYO}),
        },
    ),
    "keys in a time zone": Case(
        "update",
        counted("date_trunc('day', at) AS day", "string(at) AS s"),
        {
            "zone": Change(
                counted("date_trunc('day', at) AS day", "string(at) AS s"),
                rf"(?s)key 1 of aggregate-0: .*{NEW_YORK}.*{TOKYO}.*key 2 of aggregate-0: .*{NEW_YORK}.*{TOKYO}",
                conf={ZONE: TOKYO},
            ),
            "unit": Change(
                counted("date_trunc('week', at) AS day", "string(at) AS s"),
                "key 1 of aggregate-0: stored .*'day'.*, now .*'week'",
            ),
        },
    ),
    "windows of a computed time": Case(
        "update",
        counted("window(timestamp_seconds((value - 5) % 10), '1 hour')"),
        {
            "time": Change(
                counted("window(timestamp_seconds((value - 5) % 100), '1 hour')"),
                r"key 1 of aggregate-0: stored window\(.*\(\(value - 5\) % 10\).*, 1 hour, 1 hour, .*"
                r"now window\(.*\(\(value - 5\) % 100\)",
            ),
        },
    ),
    "structs that look like windows": Case(
        "update",
        counted("struct(at AS start, at + interval 1 hour AS end) AS w"),
        {
            "start": Change(
                counted("struct(timestamp_seconds(value) AS start, at + interval 1 hour AS end) AS w"),
                "key 1 of aggregate-0: stored .*'start', at, .*, now .*'start', ",
            ),
        },
    ),
    "sliding windows": Case(
        "append",
        windowed("window(at, '10 minutes', '5 minutes')"),
        {
            "length": Change(
                windowed("window(at, '15 minutes', '5 minutes')"),
                r"key 1 of aggregate-0: stored window\(at, 10 minutes, 5 min.*now window\(at, 15 minutes, 5 min",
            ),
            "tumbling": Change(windowed(WINDOW), "key 1 of aggregate-0"),
        },
    ),
    "sessions": Case(
        "append",
        windowed("session_window(at, '5 minutes')", "key"),
        {
            "gap": Change(
                windowed("session_window(at, '10 minutes')", "key"),
                r"key 1 of aggregate-0: stored session_window\(at, 5 minutes\), now session_window\(at, 10 minutes\)",
            ),
            "key": Change(
                windowed("session_window(at, '5 minutes')", "value as key"),
                "key 2 of aggregate-0: stored key, now value",
            ),
        },
    ),
    "functions": Case(
        "update",
        functions(),
        {
            "places": Change(
                functions(a="sum(key + value)", b="sum(value)"),
                r"function 1 of aggregate-0: stored sum\({value}\), now sum\({key, value}\)",
            ),
            "places of equal columns": Change(
                functions(c="sum(key) filter (where value > 2)", d="sum(key) filter (where value > 1)"),
                r"function 3 of aggregate-0: stored sum\(key\) where \(value > 1\), "
                r"now sum\(key\) where \(value > 2\)",
            ),
            "accuracy": Change(
                functions(p="percentile_approx(value, 0.5, 200)"),
                r"function 5 of aggregate-0: stored .*0.5, 100.*, now .*0.5, 200",
            ),
            "precision": Change(
                functions(n="approx_count_distinct(value, 0.06)"),
                r"function 6 of aggregate-0: stored .*0.05.*, now .*0.06",
            ),
        },
    ),
    "distinct functions": Case(
        "update",
        lambda df: df.groupBy("key").agg(F.count_distinct("value").alias("n")),
        {
            "argument": Change(
                lambda df: (
                    df.withColumn("value", F.hour("at").cast("bigint"))
                    .groupBy("key")
                    .agg(F.count_distinct("value").alias("n"))
                ),
                r"function 1 of aggregate-0: stored count\(DISTINCT value\), now count\(DISTINCT cast\(hour\(at",
            ),
            "value": Change(
                lambda df: df.groupBy("key").agg(F.count_distinct(F.col("value") % 10).alias("n")),
                r"function 1 of aggregate-0: stored count\(DISTINCT value\), now count\(DISTINCT \(value % 10\)\)",
            ),
            "key": Change(
                lambda df: (
                    df.withColumn("key", F.col("key") % 2).groupBy("key").agg(F.count_distinct("value").alias("n"))
                ),
                r"key 1 of distinct-0: stored key, now \(key % 2\)",
            ),
        },
    ),
    "duplicates": Case(
        "append",
        lambda df: late(df).dropDuplicates(["key", "at"]),
        {
            "computed": Change(
                lambda df: late(df.withColumn("key", F.col("key") % 2)).dropDuplicates(["key", "at"]),
                r"key \d of deduplicate-0: stored key, now \(key % 2\)",
            ),
            "other key": Change(lambda df: late(df).dropDuplicates(["value", "at"]), "state of deduplicate-0, keys"),
            "less keys": Change(lambda df: late(df).dropDuplicates(["at"]), "state of deduplicate-0, keys"),
            "within": Change(
                lambda df: late(df).dropDuplicatesWithinWatermark(["key", "at"]), "state of deduplicate-0, keys"
            ),
        },
    ),
    "duplicates within the watermark": Case(
        "append",
        lambda df: late(df).dropDuplicatesWithinWatermark(["key"]),
        {
            "computed": Change(
                lambda df: late(df.withColumn("key", F.col("key") % 2)).dropDuplicatesWithinWatermark(["key"]),
                r"key 1 of deduplicate-0: stored key, now \(key % 2\)",
            ),
            "event time": Change(
                lambda df: late(df.withColumn("at", F.timestamp_seconds("value"))).dropDuplicatesWithinWatermark(
                    ["key"]
                ),
                r"event time of watermark-0: stored {at}, now {value}",
            ),
            "body of a function": Change(
                lambda df: late(df.withColumn("value", same("value"))).dropDuplicatesWithinWatermark(["key"])
            ),
            "delay": Change(lambda df: late(df, "1 minute").dropDuplicatesWithinWatermark(["key"])),
        },
    ),
    "joins": Case(
        "append",
        joined(RANGE),
        {
            "range": Change(
                joined(RANGE.replace("5 minutes", "50 minutes")),
                "condition of stream-join-0: stored .*5 minutes.*, now .*50 minutes",
            ),
            "range of the other side": Change(
                joined("l.key = r.key AND l.at >= r.at AND l.at <= r.at + interval 5 minutes"),
                r"condition of stream-join-0: stored .*, now \(at <= timestampaddinterval\(stream-join-0/right/at",
            ),
            "no range": Change(joined(), "condition of stream-join-0: stored .*5 minutes.*, now none"),
            "type": Change(joined(RANGE, "left"), "join type of stream-join-0: stored Inner, now LeftOuter"),
            "key": Change(
                joined(RANGE, left="key + 1"),
                r"key 1 of stream-join-0: stored key = stream-join-0/right/key, now \(key \+ 1\) = ",
            ),
            "delay": Change(joined(RANGE, delay="1 minute")),
        },
    ),
    "outer joins": Case(
        "append",
        joined(f"{RANGE} AND l.value > 0", "left"),
        {
            "condition of a side": Change(
                joined(f"{RANGE} AND l.value > 5", "left"),
                r"condition of stream-join-0: .*\(value > 0\).*\(value > 5\)",
            ),
        },
    ),
    "literal join keys": Case(
        "append",
        literal_key(1),
        {"literal": Change(literal_key(2), "key 1 of stream-join-0: stored 1 = stream-join-0/right/value, now 2 = ")},
    ),
    "processors": Case(
        "update",
        processed(),
        {
            "key": Change(processed("key % 2"), r"key 1 of transform-with-state-0: stored key, now \(key % 2\)"),
            "output mode": Change(
                mode_of("append"), "output mode of transform-with-state-0: stored update, now append", mode="append"
            ),
            "time mode": Change(processed(time_mode="EventTime"), "state of transform-with-state-0, time mode"),
            "time to live": Change(processed(ttl_ms=1000)),
        },
    ),
    "processors with a time to live": Case(
        "update",
        processed(ttl_ms=100_000),
        {
            "none": Change(processed(), "state of transform-with-state-0, value, field __expires_ms"),
            "another": Change(processed(ttl_ms=1_000)),
        },
    ),
    "limits": Case(
        "append",
        lambda df: df.limit(2),
        {"more": Change(lambda df: df.limit(5))},
    ),
    "two joins": Case(
        "append",
        joined_twice("key"),
        {
            "key of the second": Change(
                joined_twice("value"),
                r"key 1 of stream-join-1: stored stream-join-0/right/value = stream-join-1/right/key, now ",
            ),
        },
    ),
    "group states": Case(
        "update",
        with_state(),
        {
            "timeout": Change(
                with_state("ProcessingTimeTimeout"),
                "timeout of group-state-0: stored NoTimeout, now ProcessingTimeTimeout",
            ),
            "output mode": Change(
                with_state(mode="append"), "output mode of group-state-0: stored update, now append", mode="append"
            ),
            "key": Change(with_state(key="key % 2"), r"key 1 of group-state-0: stored key, now \(key % 2\)"),
        },
    ),
    "generated keys": Case(
        "update",
        lambda df: df.select(F.posexplode(F.array("key", "value")).alias("p", "k")).groupBy("k").count(),
        {
            "position": Change(
                lambda df: (
                    df.select(F.posexplode(F.array("key", "value")).alias("p", "q"))
                    .groupBy(F.col("p").cast("bigint").alias("k"))
                    .count()
                ),
                "key 1 of aggregate-0",
            ),
            "array": Change(
                lambda df: df.select(F.posexplode(F.array("value", "key")).alias("p", "k")).groupBy("k").count(),
                "key 1 of aggregate-0",
            ),
        },
    ),
    "keys by lambdas and functions": Case(
        "update",
        by_lambda_and_function(added=1, column="key"),
        {
            "lambda": Change(
                by_lambda_and_function(added=2, column="key"),
                r"key 1 of aggregate-0: stored .*\(x0 \+ 1\).*, now .*\(x0 \+ 2\)",
            ),
            "argument of a function": Change(
                by_lambda_and_function(added=1, column="value"),
                r"key 2 of aggregate-0: stored <lambda>\(key\), now <lambda>\(value\)",
            ),
        },
    ),
}
