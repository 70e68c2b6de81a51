"""Spark's side of the source bridge: drives a DSv2 ``MicroBatchStream`` range by range, like Spark's micro-batches."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.catalyst.jvm import SESSION, java_class
from penstock.errors import DataError
from penstock.spark.messages import first_line

_EXECUTION = "org.apache.spark.sql.execution"
_STREAMING = "org.apache.spark.sql.connector.read.streaming"


class SparkSourceBridge:
    """Bridge to a source of Spark; see ``penstock.connectors.spark.bridge.SourceBridge``.

    Args:
        spark: a classic session.
        node: the ``StreamingRelationV2``; its table must be able to read micro-batches.
        name: name of the source in messages.
    """

    def __init__(self, spark: SparkSession, node: Any, name: str) -> None:
        self._spark = spark
        self._node = node
        self._name = name
        self._scan = node.table().newScanBuilder(node.extraOptions()).build()
        self._stream: Any = None

    def open(self, directory: str) -> None:
        self._stream = self._scan.toMicroBatchStream(directory)

    def initial_offset(self) -> str:
        return str(self._stream.initialOffset().json())

    def latest_offset(self, start: str) -> str:
        if not self._is("SupportsAdmissionControl"):
            return str(self._stream.latestOffset().json())
        return self._limited(start, self._default_limit())

    def freeze(self, start: str) -> str | None:
        if self._is("SupportsTriggerAvailableNow"):
            self._stream.prepareForTriggerAvailableNow()
            return None
        if not self._is("SupportsAdmissionControl"):
            return self.latest_offset(start)
        return self._limited(start, java_class(self._spark, f"{_STREAMING}.ReadLimit").allAvailable())

    def stage(self, start: str, end: str, directory: str) -> None:
        none = java_class(self._spark, "scala.Option").empty()
        # A physical plan belongs to the active session of its thread, and this is one of Penstock's threads.
        java_class(self._spark, SESSION).setActiveSession(self._spark._jsparkSession)
        begin, end = self._stream.deserializeOffset(start), self._stream.deserializeOffset(end)
        physical = java_class(self._spark, f"{_EXECUTION}.datasources.v2.MicroBatchScanExec")(
            self._node.output(), self._scan, self._stream, begin, end, none, none
        )
        try:
            if physical.supportsColumnar():
                physical = java_class(self._spark, f"{_EXECUTION}.ColumnarToRowExec")(physical)
            rows = self._spark._jsparkSession.internalCreateDataFrame(physical.execute(), self._node.schema(), False)
            DataFrame(rows, self._spark).write.parquet(f"file://{directory}")
        except Exception as error:
            raise DataError(
                f"source {self._name}: Spark cannot read the rows between {start} and {end}: {first_line(error)}"
            ) from error

    def committed(self, offset: str) -> None:
        self._stream.commit(self._stream.deserializeOffset(offset))

    def stop(self) -> None:
        self._stream.stop()

    def _default_limit(self) -> Any:
        """Return the default limit by reflection, because py4j does not find default methods of interfaces."""
        gateway = self._spark.sparkContext._gateway
        method = self._interface("SupportsAdmissionControl").getMethod(
            "getDefaultReadLimit", gateway.new_array(java_class(self._spark, "java.lang.Class"), 0)
        )
        return method.invoke(self._stream, gateway.new_array(java_class(self._spark, "java.lang.Object"), 0))

    def _limited(self, start: str, limit: Any) -> str:
        latest = self._stream.latestOffset(self._stream.deserializeOffset(start), limit)
        return start if latest is None else str(latest.json())

    def _is(self, interface: str) -> bool:
        return bool(self._interface(interface).isInstance(self._stream))

    def _interface(self, name: str) -> Any:
        loader = java_class(self._spark, "java.lang.Thread").currentThread().getContextClassLoader()
        return java_class(self._spark, "java.lang.Class").forName(f"{_STREAMING}.{name}", False, loader)


def can_read(node: Any) -> bool:
    """Return True if the bridge can read this ``StreamingRelationV2``."""
    return "MICRO_BATCH_READ" in [str(capability) for capability in node.table().capabilities()]
