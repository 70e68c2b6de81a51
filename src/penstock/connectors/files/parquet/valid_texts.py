"""Strings of Parquet files, which may have bytes that are not valid UTF-8."""

from __future__ import annotations

import pyarrow as pa

from penstock.connectors.files.nested_arrays import map_leaves
from penstock.functions.text.java_utf8 import decode_as_java


def with_valid_texts(array: pa.Array) -> pa.Array:
    """Replace malformed bytes in strings by U+FFFD, by Java's rule. Return the same array if all bytes are valid."""
    return map_leaves(array, array.type, _valid)


def _valid(leaf: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_string(kind):
        return leaf
    try:
        leaf.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([None if data is None else decode_as_java(data) for data in leaf.cast(pa.binary()).to_pylist()])
    return leaf
