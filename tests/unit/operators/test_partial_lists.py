"""``collect_list`` before an exchange: lists made at once are the ones that rows add up to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.aggregate.accumulators import create_accumulator
from penstock.operators.aggregate.calls import AggregateCall
from penstock.operators.aggregate.partial import new_buffers

PAIR = pa.struct([("a", pa.int64()), ("t", pa.string())])
VALUES = {
    pa.int64(): st.sampled_from([None, 0, 7]),
    pa.string(): st.sampled_from([None, "", "é"]),
    PAIR: st.none() | st.fixed_dictionaries({"a": st.sampled_from([None, 1]), "t": st.sampled_from([None, "x"])}),
}


def lists_of(kind: pa.DataType, ignore_nulls: bool, function: str = "collect_list") -> AggregateCall:
    return AggregateCall(function, 0, kind, pa.list_(kind), parameters=(ignore_nulls,))


@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("ignore_nulls", [True, False])
@given(data=st.data())
def test_lists_at_once_are_those_that_rows_add_up_to(
    kind: pa.DataType, ignore_nulls: bool, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 4), VALUES[kind]), max_size=20))
    groups, count = np.array([group for group, _ in rows], np.int64), 5
    column = pa.array([None, *(value for _, value in rows)], kind).slice(1)
    accumulator = create_accumulator(lists_of(kind, ignore_nulls))
    buffers = new_buffers(accumulator, count)
    accumulator.begin(buffers, np.arange(count))
    accumulator.add(buffers, groups, [column])
    found = accumulator.partial(groups, count, [column])
    assert found is not None
    [lists] = found
    lists.validate(full=True)
    assert lists.type == accumulator.call.buffer_fields(0)[0].type
    assert lists.to_pylist() == buffers[0].to_arrow(np.arange(count)).to_pylist()


def test_what_is_told_apart_or_of_another_type_goes_by_rows() -> None:
    groups, column = np.zeros(1, np.int64), pa.array([1], pa.int64())
    for call in (lists_of(pa.int64(), True, "collect_set"), lists_of(pa.int32(), True)):
        assert create_accumulator(call).partial(groups, 1, [column]) is None
