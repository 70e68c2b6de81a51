"""Input rows of a slice, grouped by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.state.keys import group_rows, normalize_floats
from penstock.state.ordering import order_by


@dataclass
class KeyedRows:
    """Rows of a slice, grouped by key. The first keys may be processed already.

    Attributes:
        keys: columns of the distinct keys, in the order of their first rows.
        batch: the rows, sorted by the order of ``keys``. The rows of one key keep the order of arrival.
        ends: for each key the end of its rows in ``batch``.
        processed: number of keys that were processed.
    """

    keys: list[pa.Array]
    batch: pa.RecordBatch
    ends: list[int]
    processed: int = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch, positions: Sequence[int]) -> KeyedRows:
        """Group a batch by key. ``positions``: positions of the key columns."""
        columns = [normalize_floats(batch.column(position)) for position in positions]
        owners, first = group_rows(columns, batch.num_rows)
        order = np.argsort(first)
        rank_of = np.empty_like(order)
        rank_of[order] = np.arange(len(order))
        owners, chosen = rank_of[owners], pa.array(first[order])
        if len(first) > 1:
            batch = batch.take(pa.array(order_by(owners)))
        ends: list[int] = np.cumsum(np.bincount(owners, minlength=len(first))).tolist()
        return cls([column.take(chosen) for column in columns], batch, ends)

    def with_rows(self, batch: pa.RecordBatch, positions: Sequence[int]) -> KeyedRows:
        """Return the unprocessed rows together with these rows. Unprocessed keys keep their order."""
        return KeyedRows.of(pa.concat_batches([self.pending, batch]), positions)

    @property
    def begin(self) -> int:
        """Position of the first row whose key is not processed."""
        return self.ends[self.processed - 1] if self.processed else 0

    @property
    def pending(self) -> pa.RecordBatch:
        """Rows of the keys that are not processed."""
        return self.batch.slice(self.begin)
