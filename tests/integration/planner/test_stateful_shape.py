"""Job graphs of transformWithState: the exchange, the tables, and the user's names in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import penstock
from penstock.model.job_graph import EdgeKind
from penstock.operators.stateful.declaration import RowForm
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.stateful.variables import TimeMode
from tests.integration.planner.test_graph_shape import SINK
from tests.support.planner.compiled_query import compile_query

pytestmark = pytest.mark.spark

STAMP = pa.timestamp("us", tz="UTC")


class Keeping(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        handle.getValueState("value", "k string, v double, s struct<a: int>", 60_000)
        handle.getListState("a list", "__position int, v int")
        handle.getMapState("map", "k string, n int", "k string, __key_group int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        return iter(())


def test_tables_have_the_grouping_key_and_then_what_init_declares(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema("ts timestamp, k string, v double, n int").json(str(tmp_path))
    grouped = stream.withWatermark("ts", "1 second").groupBy("n", "k")
    result = grouped.transformWithState(Keeping(), "k string, t timestamp", "Update", "ProcessingTime")
    named = penstock.named(result, "kept")
    graph = compile_query(named, sink=SINK, output_mode="update", parallelism=2, max_parallelism=128)
    [edge] = graph.edges
    assert (edge.kind, [edge.schema.names[key] for key in edge.key_columns]) == (EdgeKind.HASH, ["n", "k"])
    assert sorted(edge.schema.names) == ["k", "n", "ts", "v"], "the grouping key travels once"
    [spec] = [one for one in graph.vertices[1].operators if isinstance(one, TransformWithStateSpec)]
    assert (spec.operator_id, spec.name) == ("kept", "TransformWithState (Keeping)")
    assert [spec.input_schema.field(position).name for position in spec.data] == ["ts", "k", "v", "n"]
    assert (spec.time_mode, spec.event_time, spec.form) == (TimeMode.PROCESSING_TIME, None, RowForm.ROWS)
    columns = {name: schema.names[1:] for name, schema in spec.state_schemas.items()}
    assert columns == {
        "value": ["n", "k", "k_1", "v", "s", "__expires_ms"],
        "a list": ["n", "k", "__position", "__position_1", "v"],
        "map": ["n", "k", "k_1", "n_1", "k_2", "__key_group_1"],
        "__timers": ["n", "k", "__expires_ms"],
        "__waiting": ["n", "k", "__position", *(f"{name}_1" if name in "nk" else name for name in edge.schema.names)],
    }
    assert spec.state_keys == {"value": 2, "a list": 3, "map": 4, "__timers": 3, "__waiting": 3}
    assert spec.state_schemas["value"].types[3:] == [
        pa.string(), pa.float64(), pa.struct([pa.field("a", pa.int32())]), pa.int64(),
    ]  # fmt: skip
    assert all(field.nullable for schema in spec.state_schemas.values() for field in list(schema)[1:])
    assert spec.output_schema == pa.schema([("k", pa.string()), ("t", STAMP)])


def test_late_rows_are_told_by_the_watermarks_column_in_event_time_alone(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema("k string, ts timestamp").json(str(tmp_path)).withWatermark("ts", "1 second")
    found = {}
    for mode in ("None", "EventTime"):
        result = stream.groupBy("k").transformWithStateInPandas(Plain(), "k string", "Append", mode)
        graph = compile_query(result, sink=SINK, output_mode="append", parallelism=2, max_parallelism=128)
        [spec] = [one for one in graph.vertices[1].operators if isinstance(one, TransformWithStateSpec)]
        found[mode] = spec.event_time, sorted(spec.state_schemas)
    assert found == {"None": (None, ["__waiting"]), "EventTime": (1, ["__timers", "__waiting"])}


class Plain(Keeping):
    def init(self, handle: StatefulProcessorHandle) -> None:
        """No state."""
