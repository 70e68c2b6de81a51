"""Event time as it is compared with a watermark."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def moments(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Microseconds since 1970 of a timestamp, or of a window struct's end as in Spark; and where they are known: rows
    without event time are never late."""
    times = column.flatten()[1] if pa.types.is_struct(column.type) else column
    if not times.null_count:
        return times.view(pa.int64()).to_numpy(), np.ones(len(times), np.bool_)
    return times.view(pa.int64()).fill_null(0).to_numpy(), times.is_valid().to_numpy(zero_copy_only=False)
