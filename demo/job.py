"""The job of the demo: how late were New York's flights of 2013, by day, carrier and haul?

Edit ``delays`` and run ``make demo`` again, or run this file on its own over a directory of Parquet files:

    python demo/job.py INPUT OUTPUT            # on Penstock
    python demo/job.py INPUT OUTPUT --spark    # the same DataFrame on Spark's Structured Streaming
"""

import sys
import time
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.functions import avg, count, max, pandas_udf, sum, window  # noqa: A004 - as Spark calls them

import penstock

SCHEMA = (
    "time_hour timestamp, carrier string, flight bigint, tailnum string, origin string, dest string, "
    "dep_delay bigint, arr_delay bigint, distance bigint"
)
EVENT_TIME, DELAY = "time_hour", "1 hour"
WINDOW_END = "end"
# With much less, calls of any size would take as long, and to spread such a cost they are given many rows.
LONGEST_CALL_S = 1.0


def delays(flights: DataFrame, control: str) -> DataFrame:
    seen = flights.withWatermark(EVENT_TIME, DELAY).repartition("tailnum")
    hauls = seen.withColumn("haul", haul_of(control)("distance"))
    days = hauls.groupBy(window(EVENT_TIME, "1 day"), "carrier", "haul")
    late = [max("dep_delay").alias("worst"), avg("arr_delay").alias("late")]
    sums = days.agg(count("*").alias("flights"), sum("distance").alias("miles"), *late)
    return sums.select("window.start", "window.end", "carrier", "haul", "flights", "miles", "worst", "late")


def haul_of(control: str):
    """Short, medium or long haul; as slow as the control file says (microseconds per row, no file: full speed)."""

    @pandas_udf("string")
    def haul(miles: pd.Series) -> pd.Series:
        if control and (file := Path(control)).exists():
            time.sleep(min(len(miles) * float(file.read_text() or 0) / 1e6, LONGEST_CALL_S))
        return pd.cut(miles, [0, 500, 1500, 10_000], labels=["short", "medium", "long"]).astype(str)

    return haul


def main(source: str, target: str, on_spark: bool) -> None:
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    spark = penstock.session("delays", settings)
    df = delays(spark.readStream.schema(SCHEMA).parquet(source), control="")
    writer = df.writeStream if on_spark else penstock.writeStream(df)
    query = (
        writer.format("parquet")
        .option("path", target)
        .option("checkpointLocation", f"{target}.checkpoint")
        .trigger(processingTime="1 second")
        .outputMode("append")
        .start()
    )
    query.processAllAvailable()
    print(query.lastProgress)
    query.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], on_spark="--spark" in sys.argv)
