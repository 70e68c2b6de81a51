"""Typed decoding. All of Penstock's typed decoding uses these functions.

msgspec describes a Struct class at its first use, and the class refers to this description before it is complete. If
another thread decodes the same class meanwhile, it follows a null pointer, and the process ends with a segmentation
fault (msgspec 0.22). Therefore these functions hold one lock while they create the decoder of a type, and no thread
decodes a type before it has its decoder.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

_T = TypeVar("_T")
_describing = threading.Lock()


def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a new decoder of JSON. Any number of threads may use it."""
    with _describing:
        return msgspec.json.Decoder(kind)


def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a new decoder of MessagePack. Any number of threads may use it."""
    with _describing:
        return msgspec.msgpack.Decoder(kind)


_json = cache(json_decoder)
_msgpack = cache(msgpack_decoder)


@overload
def decode_json(data: bytes | str, kind: type[_T]) -> _T: ...


@overload
def decode_json(data: bytes | str, kind: Any) -> Any: ...


def decode_json(data: bytes | str, kind: Any) -> Any:
    """Decode JSON.

    Args:
        kind: a type that a module declares. Its decoder is cached for the life of the process.

    Raises:
        msgspec.DecodeError: the data is not JSON.
        msgspec.ValidationError: the data is not of this type.
    """
    return _json(kind).decode(data)


@overload
def decode_msgpack(data: bytes, kind: type[_T]) -> _T: ...


@overload
def decode_msgpack(data: bytes, kind: Any) -> Any: ...


def decode_msgpack(data: bytes, kind: Any) -> Any:
    """Decode MessagePack; the arguments and errors are those of ``decode_json``."""
    return _msgpack(kind).decode(data)


@overload
def convert(value: Any, kind: type[_T]) -> _T: ...


@overload
def convert(value: Any, kind: Any) -> Any: ...


def convert(value: Any, kind: Any) -> Any:
    """Convert data of JSON's types (dicts, lists, strings, numbers) to a type.

    Args:
        kind: a type that a module declares.

    Raises:
        msgspec.ValidationError: the data is not of this type.
    """
    _json(kind)
    return msgspec.convert(value, kind)
