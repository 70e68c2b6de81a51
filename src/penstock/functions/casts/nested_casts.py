"""Casts of arrays, maps and structs: part by part, and to strings."""

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
    """A struct's columns, null where the struct is."""
    return list(array.flatten())


class CastParts(Strict):
    """The elements of an array or map, or the fields of a struct, each by a kernel of its own.

    Args:
        kernels: over a batch of one column. A map has one, for its entries.
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
    """``[1, null]``, ``{1 -> a}`` and ``{1, a}``, as Spark's casts to string write.

    Args:
        kernels: what makes strings of an array's elements, a map's keys and values, a struct's fields.
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
