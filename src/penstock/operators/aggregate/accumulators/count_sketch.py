"""``count_min_sketch``: the same algorithm and serialized bytes as Spark's."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.functions.hashes.murmur3 import hash_leaf
from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import validity
from penstock.state.vector import Rows, Vector, raw_values

_HEADER = struct.Struct(">iqii")  # version, number of values, rows of the table, columns of the table
_PRIME = (1 << 31) - 1

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CountTable:
    """Table of ``depth`` rows and ``width`` columns. ``factors``: by row, the multiplier of its hash function."""

    depth: int
    width: int
    factors: tuple[int, ...]

    @classmethod
    def of(cls, empty: bytes) -> CountTable:
        """Return the table of an empty sketch that Spark serialized."""
        _, _, depth, width = _HEADER.unpack_from(empty)
        return cls(depth, width, struct.unpack_from(f">{depth}q", empty, _HEADER.size))

    def written(self, counts: Longs) -> bytes:
        """Return Spark's serialized sketch with these counts."""
        total = int(counts[: self.width].sum())  # every value is counted once in each row
        factors = struct.pack(f">{self.depth}q", *self.factors)
        return _HEADER.pack(1, total, self.depth, self.width) + factors + counts.astype(">i8").tobytes()


class CountSketch(Accumulator):
    """``count_min_sketch``. ``parameters``: the ``CountTable``.

    One buffer: the counts as int64 bytes, row by row; None if there was no value.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._table] = call.parameters
        self._size = self._table.depth * self._table.width

    def initial_values(self) -> list[object]:
        return [None]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        known = validity(arguments[0])
        values = arguments[0].filter(pa.array(known))
        present, codes = np.unique(groups[known], return_inverse=True)
        cells = codes.reshape(-1) * self._size
        found = [cells + row * self._table.width + column for row, column in enumerate(self._columns(values))]
        hit, counts = np.unique(np.concatenate(found), return_counts=True)
        ends = np.searchsorted(hit, np.arange(len(present) + 1) * self._size)
        for index, group in enumerate(present.tolist()):
            own = slice(ends[index], ends[index + 1])
            more = np.zeros(self._size, np.int64)
            more[hit[own] - index * self._size] = counts[own]
            self._keep(buffers[0], group, more)

    def _columns(self, values: pa.Array) -> list[Longs]:
        """Return, for each row of the table, the column in which each value is counted."""
        table = self._table
        if not pa.types.is_integer(values.type):
            first = hash_leaf(values, np.zeros(len(values), np.uint32))
            second = hash_leaf(values, first)
            sums = [(first + np.uint32(row) * second).view(np.int32) for row in range(table.depth)]
            return [np.abs(np.fmod(total.astype(np.int64), table.width)) for total in sums]
        numbers = raw_values(values).astype(np.int64)
        hashes = [np.int64(factor) * numbers for factor in table.factors]
        return [((product + (product >> 32)) & _PRIME) % table.width for product in hashes]

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        for group, counts in zip(groups.tolist(), partials[0].to_pylist(), strict=True):
            if counts is not None:
                self._keep(buffers[0], group, np.frombuffer(counts, np.int64))

    def _keep(self, buffer: Vector, group: int, more: Longs) -> None:
        data, valid = buffer.write()
        held = data[group]
        data[group] = (more if held is None else np.frombuffer(held, np.int64) + more).tobytes()
        valid[group] = True

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        nothing = bytes(8 * self._size)
        held = buffers[0].read()[0][rows].tolist()
        sketches = [self._table.written(np.frombuffer(counts or nothing, np.int64)) for counts in held]
        return pa.array(sketches, self.call.result_type)
