"""Tables as multisets of rows, for comparisons with Spark: in which order rows come is nobody's business."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa


def canonical(value: Any, digits: int | None = None) -> Any:
    """Equal where Spark's grouping calls values equal: NaN equals NaN and -0.0 equals 0.0, within structs and lists,
    too; instants are equal in any time zone, and never to a time without one.

    Args:
        digits: so many of a float count behind the first one; all of them by default. Sums depend on the order.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value + 0.0 if digits is None else f"{value + 0.0:.{digits}e}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, dict):
        return tuple((name, canonical(part, digits)) for name, part in value.items())
    return tuple(canonical(part, digits) for part in value) if isinstance(value, list | tuple) else value


def multiset(table: pa.Table, digits: int | None = None) -> Counter[Any]:
    """The rows in canonical form, and how often there is each."""
    columns = [[canonical(value, digits) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})
