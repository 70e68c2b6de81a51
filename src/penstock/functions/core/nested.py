"""Structs and the conversions that ``window()`` is lowered to."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import as_type, struct_array
from penstock.functions.core.strict import Strict


class MakeStruct(Expression):
    """``named_struct``. The struct itself is never null, even if all of its fields are."""

    nullable = False

    def __init__(self, children: Sequence[Expression], data_type: pa.DataType) -> None:
        self.children = tuple(children)
        self.data_type = data_type

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        arrays = [child.evaluate(batch, mask) for child in self.children]
        kinds = [self.data_type.field(i).type for i in range(self.data_type.num_fields)]
        columns = [as_type(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
        return struct_array(columns, self.data_type, None, batch.num_rows)


class GetField(Strict):
    """Field of a struct, by position; null where the struct is null."""

    def __init__(self, child: Expression, ordinal: int, data_type: pa.DataType, nullable: bool = True) -> None:
        super().__init__((child,), data_type, nullable)
        self.ordinal = ordinal

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return pc.struct_field(arrays[0], [self.ordinal])


class Reinterpret(Strict):
    """The same 32 or 64 bits as another type: microseconds as a timestamp, days as a date, and the reverse."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return arrays[0].view(self.data_type)


class Retyped(Strict):
    """The same values as a type that differs only in the names and the nullability of nested fields."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return as_type(arrays[0], self.data_type)
