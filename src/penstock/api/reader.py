"""``penstock.readStream(spark)``: PySpark's reader, with Penstock's own formats."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader as SparkReader

from penstock.spark.kafka import SPARKS_FORMAT, kafka_format


def readStream(spark: SparkSession) -> DataStreamReader:  # noqa: N802 - the name PySpark's users know
    """Return a reader like ``spark.readStream`` whose ``format("kafka")`` needs no jar.

    Its ``load`` returns an ordinary DataFrame.
    """
    return DataStreamReader(spark)


class DataStreamReader(SparkReader):  # type: ignore[misc]
    """PySpark's ``DataStreamReader``; all its methods are PySpark's own."""

    def format(self, source: str) -> DataStreamReader:
        """Set the source format as in PySpark.

        ``kafka`` is Spark's own connector if it is installed, else Penstock's.
        """
        super().format(kafka_format(self._spark) if source.strip().lower() == SPARKS_FORMAT else source)
        return self
