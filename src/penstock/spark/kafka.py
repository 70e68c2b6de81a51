"""Kafka as a stream format of a session whose Spark has no Kafka connector.

Spark reserves the name ``kafka`` for its own connector, a jar that is not part of PySpark. Without the jar, Spark
neither loads that format nor accepts a Python data source of this name. So a stand-in is registered under another name.
It gives Spark the schema, and Penstock reads the stream. If the jar is present, Spark's own format is used.
"""

from __future__ import annotations

from typing import Any, Never

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from penstock.catalyst.jvm import java_class
from penstock.errors import NotSupported

SPARKS_FORMAT = "kafka"
FORMAT = "penstock_kafka"

_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
_HEADERS = ", headers array<struct<key: string, value: binary>>"


class KafkaDataSource(DataSource):  # type: ignore[misc]
    """Data source that gives Spark's analysis the schema of a Kafka source. Spark itself cannot run it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return _COLUMNS + (_HEADERS if headers else "")

    def streamReader(self, schema: Any) -> Never:  # noqa: N802 - PySpark's name
        raise NotSupported(
            "this Kafka stream is read by Penstock: start it with penstock.writeStream(df); Spark's own engine reads "
            "Kafka through its connector, spark-sql-kafka-0-10"
        )

    reader = streamReader


def kafka_format(spark: SparkSession) -> str:
    """Return the format name with which this session can load a Kafka stream. Register the stand-in if it is needed."""
    if _has_connector(spark):
        return SPARKS_FORMAT
    if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(FORMAT):
        spark.dataSource.register(KafkaDataSource)
    return FORMAT


def _has_connector(spark: SparkSession) -> bool:
    lookup = java_class(spark, "org.apache.spark.sql.execution.datasources.DataSource").lookupDataSource
    try:
        lookup(SPARKS_FORMAT, spark._jsparkSession.sessionState().conf())
    except (AnalysisException, Py4JJavaError):
        return False
    return True
