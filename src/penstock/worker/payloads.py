"""Arrow batches as the payloads of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.protocol.credit import Payloads

SMALL_BYTES = 4 << 10
"""So little may be kept in vain: to copy, even to measure, costs more."""


def measure(batch: Any) -> int:
    """Bytes of a batch's rows (not of a parent it is a slice of), at least 1."""
    return max(1, int(batch.nbytes))


def concat(batches: Sequence[Any]) -> Any:
    """One batch with the rows of all, in order; the bytes are copied."""
    return pa.concat_batches(list(batches))


def compact(batch: Any) -> Any:
    """The batch, copied if it is a slice of less than half of what it keeps in memory.

    Queues hold slices for long; a small one must not pin its large parent.
    """
    kept = batch.get_total_buffer_size()
    if kept <= SMALL_BYTES or batch.nbytes * 2 >= kept:
        return batch
    return batch.take(pa.array(np.arange(batch.num_rows)))


ARROW = Payloads(measure=measure, concat=concat)
