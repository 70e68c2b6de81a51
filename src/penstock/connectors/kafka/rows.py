"""Conversion of Kafka messages to Arrow rows with the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

Message = Any
"""A ``confluent_kafka.Message``. Its fields are declared as optional, but they are set in messages without an error."""

_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

NO_TIMESTAMP_MS = -1
"""Timestamp of messages without one, as in Spark: a millisecond before 1970."""
_JAVA_TYPES = -1
"""Java's number of a timestamp type minus librdkafka's. The types are none, creation and append."""


def schema_of(include_headers: bool) -> pa.Schema:
    """Return the schema of the rows. Timestamps have a time zone."""
    return _SCHEMA.append(pa.field("headers", _HEADERS)) if include_headers else _SCHEMA


def to_batch(messages: Sequence[Message], include_headers: bool) -> pa.RecordBatch:
    """Convert messages without errors to rows, in the same order."""
    kind = type(messages[0])
    count = len(messages)
    times = np.fromiter(chain.from_iterable(map(kind.timestamp, messages)), np.int64, 2 * count).reshape(count, 2)
    millis = np.where(times[:, 0] == 0, NO_TIMESTAMP_MS, times[:, 1])
    columns = [
        pa.array(map(kind.key, messages), pa.binary(), size=count),
        pa.array(map(kind.value, messages), pa.binary(), size=count),
        pa.array(map(kind.topic, messages), pa.string(), size=count),
        pa.array(np.fromiter(map(kind.partition, messages), np.int32, count)),
        pa.array(np.fromiter(map(kind.offset, messages), np.int64, count)),
        pa.array(millis * 1000).cast(_SCHEMA.field("timestamp").type),
        pa.array((times[:, 0] + _JAVA_TYPES).astype(np.int32)),
    ]
    if include_headers:
        columns.append(pa.array([_headers(message) for message in messages], _HEADERS))
    return pa.record_batch(columns, schema=schema_of(include_headers))


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    """Return the headers; None if there are none, as in Spark."""
    found: list[tuple[str, bytes | None]] | None = message.headers()
    return found or None
