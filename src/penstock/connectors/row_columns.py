"""Columns of staged rows: the schema with which the rows were produced, stored with them as Spark's JSON.

Staged rows are delivered with these columns, even if the query has been edited since. The stored JSON may be forged, so
types that name a class, such as user-defined types, are never decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import StructType

from penstock.errors import SinkError

_NESTED = ("struct", "array", "map")


def columns_of_epoch(stored: Iterable[str], current: str) -> str:
    """Return the columns of an epoch's rows.

    Args:
        stored: the columns in each message of the epoch; "" for messages of earlier releases, which have no columns.
        current: the current columns of the query.

    Raises:
        SinkError: the messages contradict each other.
    """
    said = {columns or current for columns in stored} or {current}
    if len(said) > 1:
        raise SinkError("its rows are stored with different columns: a commit message was changed")
    return said.pop()


def parsed_columns(columns: str, current: str = "") -> StructType:
    """Parse a stored schema.

    Args:
        columns: the schema as JSON.
        current: the current columns of the query as JSON. Only an equal schema may have user-defined types.

    Raises:
        SinkError: the text is not a schema, or has a type that cannot be decoded.
    """
    try:
        content = json.loads(columns)
        if columns != current:
            _check(content)
        return StructType.fromJson(content)
    except SinkError:
        raise
    except Exception as error:
        raise SinkError(
            f"the stored columns of its rows are no schema: {type(error).__name__}: {error!s:.200}"
        ) from error


def _check(data_type: Any) -> None:
    if isinstance(data_type, str):
        return
    kind = data_type["type"]
    if kind not in _NESTED:
        raise SinkError(
            f"its rows have columns of type {kind!r:.40}, which are only read back by the query that staged them"
        )
    for part in ("elementType", "keyType", "valueType"):
        if part in data_type:
            _check(data_type[part])
    for field in data_type.get("fields", ()):
        _check(field["type"])
