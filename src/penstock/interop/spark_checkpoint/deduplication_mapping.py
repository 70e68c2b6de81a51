"""Mapping of the state of ``dropDuplicates`` and ``dropDuplicatesWithinWatermark``: one row per key, with its expiry.

Only ``dropDuplicatesWithinWatermark`` stores an expiry.
"""

from __future__ import annotations

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.catalyst.types import to_arrow_schema
from penstock.errors import NotSupported
from penstock.interop.spark_checkpoint.buffers import column_list, type_text
from penstock.interop.spark_checkpoint.findings import SAME, Finding
from penstock.interop.spark_checkpoint.mapping import SparkState, StateMapping, fields_of, with_positional_names
from penstock.interop.spark_checkpoint.state import MappedTable
from penstock.operators.deduplicate import TABLE, DeduplicateSpec

_PLAIN, _WITHIN = "dedupe", "dedupeWithinWatermark"
_VALUES = {_PLAIN: ["__dummy__ void"], _WITHIN: ["expiresAtMicros bigint"]}
"""Spark's value columns of a key: none, or the watermark at which the key expires."""


class DeduplicationMapping(StateMapping):
    """Mapping of ``dedupe`` or ``dedupeWithinWatermark`` to ``DeduplicateSpec``."""

    spark_names = (_PLAIN, _WITHIN)

    def __init__(self, spec: DeduplicateSpec) -> None:
        self._spec = spec

    @property
    def spark_name(self) -> str:
        return _PLAIN if self._spec.delay_us is None else _WITHIN

    @property
    def drops_late_rows(self) -> bool:
        return self._spec.event_time is not None

    def findings(self, state: SparkState) -> list[Finding]:
        spec = self._spec
        what = f"state of {spec.name}"
        state.reader.check_partitions(state.operator, len(spec.keys))
        schema = state.reader.rows(state.operator).schema
        values = [f"{field.name} {field.dataType.simpleString()}" for field in schema["value"].dataType]
        try:
            keys = [type_text(field.type) for field in to_arrow_schema(schema["key"].dataType.jsonValue())]
        except NotSupported as error:
            return [Finding(what, str(error), "start the query anew")]
        findings = []
        expected = [type_text(spec.table_schema.field(position).type) for position in range(len(spec.keys))]
        if keys != expected:
            findings.append(
                Finding(f"{what}, keys", f"Spark's are {column_list(keys)}, not {column_list(expected)}", SAME)
            )
        if values != _VALUES[self.spark_name]:
            why = f"Spark's are {column_list(values)}, not {column_list(_VALUES[self.spark_name])}"
            findings.append(Finding(f"{what}, values", why, "start the query anew"))
        return findings

    def tables(self, state: SparkState) -> list[MappedTable]:
        rows = state.reader.rows(state.operator)
        own = fields_of(rows, "key")
        keys = len(own)
        if self._spec.delay_us is not None:
            own += [F.timestamp_micros(micros) for micros in fields_of(rows, "value")]
        return [MappedTable(TABLE, with_positional_names(rows, own), keys)]
