"""Rows are chosen as Arrow's own filter chooses them, whatever is null where."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.filter import filter_rows, filter_values

INNER = pa.struct([("x", pa.int16()), ("t", pa.string()), ("b", pa.bool_())])
OUTER = pa.struct([("n", pa.int64()), ("inner", INNER), ("l", pa.list_(pa.int32()))])
INNERS = st.none() | st.fixed_dictionaries(
    {"x": st.sampled_from([None, 1, 2]), "t": st.sampled_from([None, "", "ab"]), "b": st.sampled_from([None, True])}
)
OUTERS = st.none() | st.fixed_dictionaries(
    {"n": st.sampled_from([None, 7]), "inner": INNERS, "l": st.sampled_from([None, [], [1, None]])}
)
VALUES = {
    pa.int64(): st.sampled_from([None, 0, -5]),
    pa.bool_(): st.sampled_from([None, True, False]),
    pa.string(): st.sampled_from([None, "", "ab", "é"]),
    pa.decimal128(20, 2): st.sampled_from([None, 0]),
    pa.null(): st.none(),
    pa.map_(pa.string(), pa.int64()): st.sampled_from([None, [], [("a", 1)]]),
    pa.struct([]): st.sampled_from([None, {}]),
    OUTER: OUTERS,
}


@pytest.mark.parametrize("kind", VALUES, ids=[str(kind)[:14] for kind in VALUES])
@given(data=st.data())
def test_values_are_those_that_arrow_chooses(kind: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(VALUES[kind], st.sampled_from([None, True, True, False])), max_size=12))
    only_present = data.draw(st.booleans())
    array = pa.array([None, *(value for value, _ in rows)], kind).slice(1)
    chosen = pa.array([None, *(here if value is not None or not only_present else False for value, here in rows)])
    chosen = chosen.cast(pa.bool_()).slice(1)
    found = filter_values(array, chosen)
    found.validate(full=True)
    assert found.equals(array.filter(chosen))
    assert found.type == kind


def test_columns_without_nulls_among_the_chosen_have_none_left() -> None:
    bids = pa.array([{"n": 1, "inner": {"x": None, "t": "a", "b": True}, "l": []}, None], OUTER)
    batch = pa.record_batch([pa.array(["bid", None]), bids], names=["kind", "bid"])
    found = filter_rows(batch, pa.array([True, False]))
    assert found.equals(batch.slice(0, 1))
    assert [column.buffers()[0] for column in found.columns] == [None, None]
    assert [field.buffers()[0] is None for field in found.column("bid").field("inner").flatten()] == [False, True, True]


def test_rows_without_columns_are_counted() -> None:
    batch = pa.record_batch([pa.nulls(3)], names=["_"]).select([])
    assert filter_rows(batch, pa.array([True, None, True])).num_rows == 2
