"""Mapping of the state of a streaming aggregation: one row per group, with keys and buffers (``buffers.py``)."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.catalyst.types import to_arrow_schema
from penstock.interop.spark_checkpoint.buffers import buffer_texts, check_columns, own_buffers, stored_shapes
from penstock.interop.spark_checkpoint.findings import Finding
from penstock.interop.spark_checkpoint.mapping import SparkState, StateMapping, fields_of, with_positional_names
from penstock.interop.spark_checkpoint.state import MappedTable
from penstock.operators.aggregate.final import TABLE, FinalAggregateSpec

_STATE_FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"


class AggregationMapping(StateMapping):
    """Mapping of ``stateStoreSave`` to ``FinalAggregateSpec``."""

    spark_names = ("stateStoreSave",)

    def __init__(self, spec: FinalAggregateSpec) -> None:
        self._spec = spec

    @property
    def drops_late_rows(self) -> bool:
        return self._spec.event_time is not None

    def findings(self, state: SparkState) -> list[Finding]:
        spec = self._spec
        version = state.conf.get(_STATE_FORMAT, "2")
        if version != "2":
            why = f"Spark stored it in format {version}, not 2"
            return [Finding(f"state of {spec.name}", why, "start the query anew")]
        state.reader.check_partitions(state.operator, spec.key_count)
        schema = state.reader.rows(state.operator).schema
        return check_columns(spec, *(schema[name].dataType.jsonValue() for name in ("key", "value")))

    def tables(self, state: SparkState) -> list[MappedTable]:
        rows = state.reader.rows(state.operator)
        keys, buffers = fields_of(rows, "key"), fields_of(rows, "value")
        own: list[Column] = [*keys, F.lit(False)]  # Spark has emitted all changes
        stored = buffer_texts(to_arrow_schema(rows.schema["value"].dataType.jsonValue()))
        shapes = stored_shapes(self._spec.calls, stored)
        assert shapes is not None  # ``findings`` is called first and reports this case
        taken = 0
        for call, shape in zip(self._spec.calls, shapes, strict=True):
            own += own_buffers(call, shape, buffers[taken : taken + len(shape.columns)])
            taken += len(shape.columns)
        key_group_columns = 0 if self._spec.mode == "complete" else len(keys)
        return [MappedTable(TABLE, with_positional_names(rows, own), key_group_columns)]
