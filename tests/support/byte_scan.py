"""Search for a text in the files below a directory: as bytes, compressed, in base64, or in a row."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq


def files_with(directory: Path, text: str) -> list[str]:
    """Relative paths of the files that hold it, plain or percent-encoded, in UTF-8 or UTF-16."""
    sought = [form.encode(code) for form in {text, quote(text)} for code in ("utf-8", "utf-16-le", "utf-16-be")]
    return sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and any(one in data for data in _forms(path.read_bytes()) for one in sought)
    )


def _forms(data: bytes) -> Iterator[bytes]:
    """The bytes, and what they say to those who know their format."""
    yield data
    with suppress(ValueError):
        yield from _texts(json.loads(data))
    with suppress(zlib.error):
        yield zlib.decompress(data, wbits=47)
    with suppress(pa.ArrowException, OSError):
        table = pq.read_table(pa.BufferReader(data))
        yield from _table(table)
    yield from _streams(data)


def _streams(data: bytes) -> Iterator[bytes]:
    """Arrow streams, one after the other."""
    source = pa.BufferReader(data)
    with suppress(pa.ArrowException, OSError, StopIteration):
        while source.tell() < len(data):
            reader = pa.ipc.open_stream(source)
            batches, custom = [], []
            with suppress(StopIteration):
                while True:
                    batch, metadata = reader.read_next_batch_with_custom_metadata()
                    batches.append(batch)
                    custom.append(repr(dict(metadata or {})))
            yield from _table(pa.Table.from_batches(batches, reader.schema))
            yield "".join(custom).encode()


def _table(table: pa.Table) -> Iterator[bytes]:
    yield repr(table.schema.metadata).encode()
    yield repr(table.to_pylist()).encode()


def _texts(value: Any) -> Iterator[bytes]:
    """Every text in JSON without escapes, and what it is if it is base64."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value.encode(errors="surrogatepass")
        with suppress(binascii.Error, ValueError):
            yield base64.b64decode(value, validate=True)
