"""Envelopes: small JSON files with a checksum, ``{"body": ..., "checksum": "<xxh3-128 hex>"}``.

The checksum is taken over the canonical JSON of the body: sorted keys, no spaces, UTF-8, no unneeded escapes. This is
Python's ``json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)``.
"""

from __future__ import annotations

import json
import re

import msgspec
import xxhash

from penstock.errors import CorruptSnapshot

_WAY_OUT = "restore this file of the checkpoint location from a copy, or start anew with an empty checkpointLocation"
_FEW_VALUES = 1 << 22
_BYTES_OF_A_VALUE = 8
"""A file may have ``_FEW_VALUES`` values, and one more for each ``_BYTES_OF_A_VALUE`` bytes.

Penstock's own files have fewer values. An array or object counts as four values. Decoded values take up to seven times
the size of the file.
"""
_ARRAY_OR_OBJECT = 4
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def exceeds_value_limit(data: bytes) -> bool:
    """Return True if JSON has so many values that it would take far more memory than its size.

    An empty list, for example, is three bytes of JSON.
    """
    limit = _FEW_VALUES + len(data) // _BYTES_OF_A_VALUE
    if _weight(data) <= limit:
        return False
    in_strings = sum(_weight(data[found.start() : found.end()]) for found in _STRING.finditer(data))
    return _weight(data) - in_strings > limit


def check_values(data: bytes, path: str) -> None:
    """Raise CorruptSnapshot for a file of the location with too many values; see ``exceeds_value_limit``."""
    if exceeds_value_limit(data):
        raise CorruptSnapshot(f"{path} holds too many values for its size; {_WAY_OUT}")


def _weight(data: bytes) -> int:
    return data.count(b",") + _ARRAY_OR_OBJECT * (data.count(b"[") + data.count(b"{"))


def canonical_json(body: object) -> bytes:
    """Return the canonical JSON. Raises ValueError for NaN, infinities and text that is not Unicode."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


_SEALED = re.compile(rb'\{"body":(.*),"checksum":"([0-9a-f]{32})"\}\n', re.DOTALL)
"""Form that ``seal_envelope`` writes. A file with another layout is intact if its content is."""


def digest(data: bytes) -> str:
    """Return the XXH3-128 hex digest."""
    return str(xxhash.xxh3_128_hexdigest(data))


def seal_envelope(body: object) -> bytes:
    """Return the bytes of a file with a body of plain JSON data."""
    return canonical_json({"body": body, "checksum": digest(canonical_json(body))}) + b"\n"


def sealed_body(data: bytes, path: str) -> bytes:
    """Return the JSON of an intact file's body.

    Raises:
        CorruptSnapshot: the file is not JSON, is not an envelope, or was changed. The message names ``path``.
    """
    as_sealed = _SEALED.fullmatch(data)
    if as_sealed and digest(as_sealed[1]) == as_sealed[2].decode():
        return as_sealed[1]  # The checksum was taken over exactly these bytes, so nothing needs to be parsed.
    check_values(data, path)
    try:
        envelope = json.loads(data)
        if not isinstance(envelope, dict) or set(envelope) != {"body", "checksum"}:
            raise CorruptSnapshot(f"{path} is not a file of Penstock; {_WAY_OUT}")
        body = canonical_json(envelope["body"])
    # The error may be caused by numbers of unbounded length, unbounded nesting or invalid surrogates.
    except (ValueError, RecursionError, MemoryError) as error:
        raise _not_json(path, error) from error
    if digest(body) != envelope["checksum"]:
        raise CorruptSnapshot(f"{path} does not match its checksum; {_WAY_OUT}")
    return body


def open_envelope(data: bytes, path: str) -> object:
    """Return the body of an intact file. Raises as ``sealed_body``."""
    check_values(data, path)
    try:
        # Decode strictly: a body with a valid checksum need not be canonical JSON.
        return msgspec.json.decode(sealed_body(data, path))
    except (ValueError, RecursionError, MemoryError) as error:
        raise _not_json(path, error) from error


def _not_json(path: str, error: BaseException) -> CorruptSnapshot:
    return CorruptSnapshot(f"{path} is not JSON ({error!s:.200}); {_WAY_OUT}")
