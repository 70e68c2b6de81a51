"""Arrow batches as the payloads of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.protocol.output import Payloads


def measure(batch: Any) -> int:
    """Bytes of a batch's rows (not of a parent it is a slice of), at least 1."""
    return max(1, int(batch.nbytes))


def concat(batches: Sequence[Any]) -> Any:
    """One batch with the rows of all, in order; the bytes are copied."""
    return pa.concat_batches(list(batches))


ARROW = Payloads(measure=measure, concat=concat)
