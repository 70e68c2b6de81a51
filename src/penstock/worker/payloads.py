"""Arrow batches as payloads of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.protocol.output import Payloads


def measure(batch: Any) -> int:
    """Return the bytes of a batch's rows, at least 1.

    The bytes of a parent that the batch is a slice of do not count.
    """
    return max(1, int(batch.nbytes))


def concat(batches: Sequence[Any]) -> Any:
    """Return one batch with the rows of all batches, in order. The bytes are copied."""
    return pa.concat_batches(list(batches))


ARROW = Payloads(measure=measure, concat=concat)
