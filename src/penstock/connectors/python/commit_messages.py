"""Encoding of a user's ``WriterCommitMessage`` as bytes in a snapshot.

A dataclass of plain values becomes JSON with its module and name; any other message becomes a pickle with an HMAC. Both
have the columns of the written rows (``row_columns``). Decoding a plain message imports nothing: its class must already
be loaded, which is the case after the program has created its data source.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import sys
from typing import Any, cast

import msgspec
from pyspark import cloudpickle
from pyspark.sql.datasource import WriterCommitMessage

from penstock.connectors.python.signed import KEY_FILE_VARIABLE, sign, verify
from penstock.decoding import convert
from penstock.errors import SinkError
from penstock.grammar import Columns, PythonName
from penstock.model.plain import Plain
from penstock.snapshots.format.envelope import exceeds_value_limit


class _PlainMessage(msgspec.Struct, frozen=True, tag_field="kind", tag="dataclass"):
    module: PythonName
    name: PythonName
    fields: dict[str, Plain]
    columns: Columns = ""


class _SignedMessage(msgspec.Struct, frozen=True, tag_field="kind", tag="signed-pickle"):
    data: bytes
    columns: Columns = ""


def encode_message(message: WriterCommitMessage, key: bytes, query_id: str, epoch: int, columns: str) -> bytes:
    """Encode a message as plain data if possible, otherwise signed for this query, epoch and columns."""
    fields = _plain_fields(message)
    if fields is not None:
        cls = type(message)
        content = {"kind": "dataclass", "module": cls.__module__, "name": cls.__qualname__, "fields": fields}
        return json.dumps({**content, "columns": columns}).encode()
    signed = sign(key, _purpose(query_id, epoch, columns), cloudpickle.dumps(message))
    data = base64.b64encode(signed).decode()
    return json.dumps({"kind": "signed-pickle", "data": data, "columns": columns}).encode()


def decode_message(data: bytes, key: bytes, query_id: str, epoch: int) -> tuple[WriterCommitMessage, str]:
    """Return the message and its columns; "" for a message of an earlier release, which has no columns.

    A pickle is loaded only after its signature is verified.

    Raises:
        SinkError: the message is forged, signed with another key or for another epoch, or its class is not loaded.
    """
    if exceeds_value_limit(data):
        raise SinkError(f"the commit message of epoch {epoch} is none that Penstock wrote: it holds too many values")
    try:
        # Python's own decoder: it keeps integers of any size, which a user's fields may have.
        content = convert(json.loads(data), _PlainMessage | _SignedMessage)
    except (ValueError, RecursionError) as error:
        raise SinkError(f"the commit message of epoch {epoch} is none that Penstock wrote: {error!s:.200}") from error
    columns = content.columns
    if isinstance(content, _PlainMessage):
        return _dataclass(content), columns
    blob = verify(key, _purpose(query_id, epoch, columns), content.data)
    if blob is None:
        raise SinkError(
            f"the commit message of epoch {epoch} does not carry this user's signature and was not opened: it was "
            f"changed, or written under another key (see {KEY_FILE_VARIABLE})"
        )
    message = pickle.loads(blob)  # verified above
    if not isinstance(message, WriterCommitMessage):
        raise SinkError(f"the commit message of epoch {epoch} is a {type(message).__name__}, no WriterCommitMessage")
    return message, columns


def _purpose(query_id: str, epoch: int, columns: str) -> str:
    return f"penstock commit message {query_id} {epoch}{' ' + columns if columns else ''}"


def _plain_fields(message: WriterCommitMessage) -> dict[str, Plain] | None:
    """Return the fields of a message if the constructor can restore it exactly from them; None otherwise."""
    cls = type(message)
    # A class that was pickled by value (a local class, or one of a notebook) cannot be found by name after a restart.
    if not dataclasses.is_dataclass(cls) or _loaded(cls.__module__, cls.__qualname__) is not cls:
        return None
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    if sorted(vars(message)) != sorted(names):
        return None
    fields = {name: getattr(message, name) for name in names}
    return fields if _is_plain(fields) else None


def _is_plain(value: Any) -> bool:
    """Return True for a value that JSON restores exactly: no tuples, subclasses, NaN, infinities or non-string keys."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(_is_plain(item) for item in value)
    if type(value) is float:
        return value - value == 0
    return value is None or type(value) in (bool, int, str)


def _loaded(module: str, qualified_name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in qualified_name.split("."):
        found = getattr(found, part, None)
    return found


def _dataclass(content: _PlainMessage) -> WriterCommitMessage:
    found = _loaded(content.module, content.name)
    if not (isinstance(found, type) and issubclass(found, WriterCommitMessage) and dataclasses.is_dataclass(found)):
        raise SinkError(
            f"commit messages of class {content.module}.{content.name} are stored, but this program has no such "
            "dataclass loaded: import its module before starting the query"
        )
    try:
        return cast("WriterCommitMessage", found(**content.fields))
    except TypeError as error:
        raise SinkError(f"{content.module}.{content.name} no longer takes the stored fields: {error}") from error
