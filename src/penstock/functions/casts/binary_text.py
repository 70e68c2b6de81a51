"""Binary as text: the same bytes, where they are UTF-8."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import DataError
from penstock.functions.core.base import Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import only

SHOWN_BYTES = 32


class BinaryToText(Strict):
    """``cast(binary as string)``. Spark lets any bytes pass and calls them a string; what its functions make of one
    that is not UTF-8 has no counterpart here, so that such a value ends the query."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = only(arrays[0], rows)
        try:
            return values.cast(self.data_type)
        except pa.ArrowInvalid:
            bad = next(value for value in values.to_pylist() if not _is_text(value))
        shown = bad[:SHOWN_BYTES].hex() + ("..." if len(bad) > SHOWN_BYTES else "")
        raise DataError(
            f"cast to string: the binary value x'{shown}' of {len(bad)} bytes is not UTF-8; decode such values in "
            "mapInArrow or a udf, or filter them out before the cast"
        )


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False
