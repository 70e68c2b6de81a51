"""The last of the best values by owner: found without ranking all, and the same as by ranks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.functions.core.ranks import ranks
from penstock.operators.aggregate.accumulators.extremes import last_bests

INNER = pa.struct([("x", pa.int16()), ("y", pa.string())])
OUTER = pa.struct([("n", pa.int64()), ("inner", INNER), ("f", pa.float64()), ("s", pa.string())])
LONGS = st.sampled_from([None, -(2**63), -1, 0, 1, 2**63 - 1])
FLOATS = st.sampled_from([None, float("-inf"), -1.0, -0.0, 0.0, 1.5, float("inf"), float("nan")])
TEXTS = st.sampled_from([None, "", "a", "ab", "é"])
INNERS = st.none() | st.fixed_dictionaries({"x": st.sampled_from([None, -1, 0]), "y": TEXTS})
OUTERS = st.none() | st.fixed_dictionaries({"n": LONGS, "inner": INNERS, "f": FLOATS, "s": TEXTS})
KINDS = [
    (pa.int64(), LONGS),
    (pa.float64(), FLOATS),
    (pa.string(), TEXTS),
    (pa.bool_(), st.sampled_from([None, False, True])),
    (pa.list_(pa.int64()), st.none() | st.lists(st.sampled_from([None, 0, 1]), max_size=2)),
    (INNER, INNERS),
    (OUTER, OUTERS),
]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("kind", "values"), KINDS, ids=[str(kind)[:12] for kind, _ in KINDS])
@given(data=st.data())
def test_the_last_best_is_what_ranks_say(
    kind: pa.DataType, values: st.SearchStrategy[object], largest: bool, data: st.DataObject
) -> None:
    owned = data.draw(st.lists(st.tuples(st.integers(0, 3), values), min_size=1, max_size=20))
    present = sorted({owner for owner, _ in owned})
    owners = np.array([present.index(owner) for owner, _ in owned])
    array = pa.array([None, *(value for _, value in owned)], kind).slice(1)
    order = ranks(array) if largest else -ranks(array)
    expected = [
        max(np.flatnonzero(owners == owner), key=lambda place: (order[place], place)) for owner in range(len(present))
    ]
    assert last_bests(array, owners, len(present), largest).tolist() == expected


def test_what_stands_where_a_value_is_null_does_not_count() -> None:
    numbers = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\0"), pa.array([1, 9, 5]).buffers()[1]])
    pairs = pa.StructArray.from_arrays([numbers, pa.array(["b", "a", "c"])], ["n", "t"])
    owners = np.zeros(3, np.int64)
    assert numbers.null_count == 3
    assert last_bests(pairs, owners, 1, largest=True).tolist() == [2]
    assert last_bests(pairs, owners, 1, largest=False).tolist() == [1]
