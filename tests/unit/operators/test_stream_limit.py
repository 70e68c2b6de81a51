"""The limit of a stream: over slices, restores and rescales it lets so many rows pass and no more."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.model.key_groups import owned_range
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.operators.stream_limit import TABLE, StreamLimitSpec
from penstock.state.hashing import groups_of
from penstock.state.memory_table import MemoryBackend
from penstock.state.rocksdb_table import RocksDBBackend
from penstock.state.table import StateBackend, StoredRows
from penstock.testing.conformance import check_operators
from tests.support.operators.harness import opened, stored

SCHEMA = pa.schema([("n", pa.int64())])


def spec(count: int) -> StreamLimitSpec:
    return StreamLimitSpec(operator_id="stream-limit-0", name="Limit", output_schema=SCHEMA, count=count)


def rows(first: int, last: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, last), pa.int64())})


def passed(operator: Operator, batch: pa.RecordBatch) -> list[int]:
    return [n for out in operator.process(batch) for n in out.column(0).to_pylist()]


def test_the_first_rows_pass() -> None:
    operator = opened(spec(5))
    assert passed(operator, rows(0, 3)) == [0, 1, 2]
    assert passed(operator, rows(3, 9)) == [3, 4]
    assert passed(operator, rows(9, 12)) == []
    assert operator.counters()["state_rows"] == 1
    assert passed(opened(spec(0)), rows(0, 3)) == []


def restored(state: OperatorState, subtask: int, parallelism: int, backend: StateBackend) -> Operator:
    operator = spec(5).create()
    operator.open(OperatorContext("stream-limit-0", subtask, parallelism, 128, backend))
    pieces = [StoredRows(each, False) for each in state.tables[TABLE].base(*owned_range(subtask, parallelism, 128))]
    operator.restore(RestoredState({TABLE: pieces}))
    return operator


@pytest.mark.parametrize("backend", [MemoryBackend, lambda: RocksDBBackend(8 << 20)])
def test_the_count_goes_where_the_rows_go(backend: type[StateBackend]) -> None:
    """That is the subtask that owns the key group of no key."""
    before = opened(spec(5))
    passed(before, rows(0, 3))
    [group] = groups_of([], 1, 128)
    left = []
    for subtask in range(3):
        state = backend()
        after = restored(before.snapshot(), subtask, 3, state)
        first, last = owned_range(subtask, 3, 128)
        left.append((first <= group <= last, len(passed(after, rows(3, 20)))))
        after.close()
        state.close()
    assert sorted(left) == [(False, 5), (False, 5), (True, 2)]


def test_the_kit_for_operators_finds_nothing() -> None:
    inputs = [rows(0, 4), 10, rows(4, 9), 20, rows(9, 30)]
    check_operators([spec(17)], inputs, schedules=20)
    again = opened(spec(17))
    again.restore(stored(opened(spec(17)).snapshot()))
    assert len(passed(again, rows(0, 40))) == 17
