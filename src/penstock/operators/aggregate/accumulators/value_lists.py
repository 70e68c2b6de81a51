"""Columns of lists as the values of all of them and who has which: what functions that keep values compute with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.vector import Rows, Vector


def sizes_of(lists: pa.Array) -> Rows:
    """How many values each list has; none where it is null."""
    sizes: Rows = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    return sizes


def unrolled(groups: Rows, columns: Sequence[pa.Array]) -> tuple[Rows, list[pa.Array]]:
    """The values of lists that are equally long in all columns, and the group of each."""
    return np.repeat(groups, sizes_of(columns[0])), [column.flatten() for column in columns]


def with_held(buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array]) -> tuple[Rows, list[pa.Array]]:
    """What these groups hold in their lists already and then what comes to them, and the group of each value."""
    there, held = held_of(buffers, np.unique(groups))
    both = [pa.concat_arrays([old, new.cast(old.type)]) for old, new in zip(held, columns, strict=True)]
    return np.concatenate([there, groups]), both


def held_of(buffers: Sequence[Vector], groups: Rows) -> tuple[Rows, list[pa.Array]]:
    """What these groups hold in their lists, and the group of each value."""
    return unrolled(groups, [buffer.to_arrow(groups) for buffer in buffers])


def hold(buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array]) -> None:
    """Make these the lists of their groups; ``groups`` ascend."""
    present, sizes = np.unique(groups, return_counts=True)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    for buffer, column in zip(buffers, columns, strict=True):
        buffer.set(present, pa.ListArray.from_arrays(offsets, column, buffer.kind))
