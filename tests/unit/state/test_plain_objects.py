"""Dates, times and durations as Python objects: all that Arrow can hold, nested ones too."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.state.arrays import plain_objects, readable_objects, readable_rows
from penstock.state.vector import Vector

KINDS = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(), pa.duration("us"), pa.time64("us")]


def nested(kind: pa.DataType) -> pa.Array:
    """Nulls at every depth, also in and around what may not be null; behind another, so that offsets begin above 0."""
    far = 5 if pa.types.is_time64(kind) else 2 ** (kind.bit_width - 2)
    shape = pa.struct(
        [
            pa.field("x", kind, nullable=False),
            ("l", pa.list_(pa.field("element", kind, nullable=False))),
            ("m", pa.map_(kind, pa.list_(kind))),
            ("d", pa.decimal128(20, 2)),
        ]
    )
    full = {"x": far, "l": [-far, 1], "m": [(far, [far, None])], "d": Decimal("1.50")}
    return pa.array([full, None, full, {"x": 0, "l": None, "m": None, "d": None}], shape).slice(1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_values_come_back_as_they_were(kind: pa.DataType) -> None:
    for array in (nested(kind), nested(kind).field("x"), nested(kind).slice(2, 0)):
        assert pa.array(plain_objects(array), array.type).equals(array)
        vector = Vector(array.type, None if pa.types.is_nested(array.type) else 0)
        vector.extend(len(array))
        vector.set(np.arange(len(array)), array)
        assert vector.to_array().equals(array)


def test_what_has_no_value_in_python_is_read_as_text() -> None:
    times = pa.array([0, None, 253_402_300_800_000_000], pa.timestamp("us"))
    first, nothing, text = readable_objects(times)
    assert (first, nothing) == (dt.datetime(1970, 1, 1), None)
    assert text == "10000-01-01 00:00:00.000000"
    [row] = readable_rows(pa.record_batch([times, pa.array([1, 2, 3])], ["t", "n"]).slice(2))
    assert row == {"t": text, "n": 3}
