"""Late rows by a port, judged by the rule of the aggregation behind."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import ProtocolViolation
from penstock.operators.base import OperatorContext, RestoredState, ScalarPart
from penstock.operators.late_rows import LATE_PORT, LateRowsOperator, LateRowsSpec
from penstock.state.hashing import key_groups
from penstock.state.table import NoState

WINDOW = pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])
SCHEMA = pa.schema([("value", pa.int64()), ("window", WINDOW), ("computed", pa.int64())])


def rows(*ends: int | None) -> pa.RecordBatch:
    windows = [None if end is None else {"start": end - 10, "end": end} for end in ends]
    columns = [pa.array(range(len(ends)), pa.int64()), pa.array(windows, WINDOW), pa.array([0] * len(ends), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def opened() -> tuple[LateRowsOperator, list[tuple[str, pa.RecordBatch]]]:
    spec = LateRowsSpec(
        operator_id="late-rows-0", name="LateRows", output_schema=SCHEMA, keys=(0, 1), event_time=1, columns=2
    )
    operator = spec.create()
    assert isinstance(operator, LateRowsOperator)
    emitted: list[tuple[str, pa.RecordBatch]] = []
    operator.open(
        OperatorContext("late-rows-0", 0, 1, 128, NoState(), lambda port, batch: emitted.append((port, batch)))
    )
    return operator, emitted


def test_without_a_watermark_nothing_is_late() -> None:
    operator, emitted = opened()
    assert [batch.num_rows for batch in operator.process(rows(10, None))] == [2]
    assert emitted == []
    assert operator.counters() == {"rows_dropped_late": 0}


def test_what_the_watermark_has_closed_goes_out_by_the_port_without_computed_columns() -> None:
    operator, emitted = opened()
    assert list(operator.advance(20)) == []
    assert list(operator.advance(15)) == [], "it only rises"
    [passed] = operator.process(rows(10, 20, 21, None))
    assert passed.column(0).to_pylist() == [2, 3], "at the watermark is late; without event time is not"
    [(port, late)] = emitted
    assert (port, late.schema.names, late.column(0).to_pylist()) == (LATE_PORT, ["value", "window"], [0, 1])
    assert list(operator.process(rows(5))) == [], "no empty batches"
    assert operator.counters() == {"rows_dropped_late": 3}


def test_behind_a_rescale_what_any_forebear_had_closed_for_a_key_is_late() -> None:
    groups = key_groups(rows(30, 30, 30), (0, 1), 128).tolist()
    ahead, _ = opened()
    list(ahead.advance(40))
    behind, _ = opened()
    list(behind.advance(20))
    heir, emitted = opened()
    parts = [
        ScalarPart(index, first, last, one.snapshot().scalars)
        for index, (one, first, last) in enumerate(((ahead, groups[1], groups[1]), (behind, groups[2], groups[2])))
    ]
    heir.restore(RestoredState({}, parts, rescaled=True))
    list(heir.advance(20))
    [passed] = heir.process(rows(30, 30, 30))
    assert passed.column(0).to_pylist() == [0, 2]
    assert [late.column(0).to_pylist() for _, late in emitted] == [[1]]


def test_an_operator_that_nobody_gave_ports_has_none() -> None:
    with pytest.raises(ProtocolViolation, match="without side outputs"):
        OperatorContext("x", 0, 1, 128, NoState()).emit("late", rows(1))
