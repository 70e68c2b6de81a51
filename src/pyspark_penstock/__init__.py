"""Registration of ``format("penstock")``: Spark imports ``DefaultSource`` of every module named pyspark_*."""

from penstock.interop.spark_data.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
