"""Casts of arrays, maps and structs to other nested types, part by part, and to strings."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import list_array, ragged, struct_array
from penstock.functions.core.strict import Strict


def _made(kernel: Expression, values: pa.Array, rows: Mask | None = None) -> pa.Array:
    return kernel.evaluate(pa.RecordBatch.from_arrays([values], names=["0"]), rows)


def _fields(array: pa.Array) -> list[pa.Array]:
    """Return the columns of a struct, null where the struct is null."""
    return list(array.flatten())


class CastParts(Strict):
    """Cast of each element of an array or map, or of each field of a struct, by a kernel.

    Args:
        child: the value to cast.
        kernels: expressions over a batch of one column. A map has one, for its entries.
        data_type: the result's type.
        nullable: False if the result is never null.
    """

    def __init__(
        self, child: Expression, kernels: Sequence[Expression], data_type: pa.DataType, nullable: bool
    ) -> None:
        super().__init__((child,), data_type, nullable)
        self.kernels = tuple(kernels)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        if not pa.types.is_struct(self.data_type):
            lists = ragged(arrays[0], rows)
            return list_array(lists.sizes, _made(self.kernels[0], lists.values), self.data_type, rows)
        columns = zip(self.kernels, _fields(arrays[0]), strict=True)
        made = [_made(kernel, field, rows) for kernel, field in columns]
        return struct_array(made, self.data_type, rows, len(arrays[0]))


class NestedText(Strict):
    """Cast to string in Spark's form: ``[1, null]``, ``{1 -> a}`` and ``{1, a}``.

    Args:
        child: the value to cast.
        kernels: casts to string of an array's elements, of a map's keys and values, or of each field of a struct.
        nullable: False if the result is never null.
    """

    def __init__(self, child: Expression, kernels: Sequence[Expression], nullable: bool) -> None:
        super().__init__((child,), pa.string(), nullable)
        self.kernels = tuple(kernels)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        array = arrays[0]
        if pa.types.is_struct(array.type):
            texts = [self._text(i, field, rows) for i, field in enumerate(_fields(array))]
            inner = pc.binary_join_element_wise(*texts, ", ") if texts else pa.repeat("", len(array))
            return pc.if_else(array.is_valid(), pc.binary_join_element_wise("{", inner, "}", ""), None)
        lists = ragged(array, rows)
        if pa.types.is_map(array.type):
            keys, values = (self._text(i, lists.values.field(i)) for i in (0, 1))
            parts, brackets = pc.binary_join_element_wise(keys, values, " -> "), "{}"
        else:
            parts, brackets = self._text(0, lists.values), "[]"
        inner = pc.binary_join(list_array(lists.sizes, parts, pa.list_(pa.string()), rows), ", ")
        return pc.binary_join_element_wise(brackets[0], inner, brackets[1], "")

    def _text(self, kernel: int, values: pa.Array, rows: Mask | None = None) -> pa.Array:
        return pc.fill_null(_made(self.kernels[kernel], values, rows), "null")
