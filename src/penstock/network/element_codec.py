"""Messages of a data link: encoding of the elements sent between two slots.

A buffer is a 64-byte header (generation, seq, cost, backlog, following) followed by an Arrow IPC record batch message,
so the batch is read in place, without a copy. Its schema is sent once per edge and link, and again only if it changes.
The edge is the message's stream, and producer and consumer are the two ends of the link.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from penstock.decoding import msgpack_decoder
from penstock.errors import GenerationFailed, NotSupported
from penstock.model.elements import Alignment, Barrier, Buffer, Element, EndOfPartition, Watermark
from penstock.model.ids import BufferId, ChannelId
from penstock.network.frames import Bytes, Message, MessageKind

_BUFFER_HEADER = struct.Struct("<QQQQQ24x")
_GRANT = struct.Struct("<Q")

Parts = list[Bytes | pa.Buffer]


class _Watermark(msgspec.Struct, frozen=True, tag=True):
    timestamp_us: int


class _Barrier(msgspec.Struct, frozen=True, tag=True):
    checkpoint: int
    alignment: str
    remaining_ms: int | None
    elapsed_ms: int


class _EndOfPartition(msgspec.Struct, frozen=True, tag=True):
    pass


_elements = msgpack_decoder(_Watermark | _Barrier | _EndOfPartition)


@dataclass(frozen=True, slots=True)
class ReceivedElement:
    channel: ChannelId
    element: Element


@dataclass(frozen=True, slots=True)
class ReceivedGrant:
    channel: ChannelId
    credit: int


class DataEncoder:
    """Encodes the elements that one slot sends to one peer. Only one thread at a time may use it per edge."""

    def __init__(self) -> None:
        self._schemas: dict[int, pa.Schema] = {}

    def element(self, edge: int, element: Element) -> list[tuple[MessageKind, Parts]]:
        """Encode an element as one message, or as two if its schema must be sent first."""
        if not isinstance(element, Buffer):
            return [(MessageKind.ELEMENT, [msgspec.msgpack.encode(_plain(element))])]
        batch = element.payload
        assert isinstance(batch, pa.RecordBatch)
        header = _BUFFER_HEADER.pack(
            element.id.generation, element.id.seq, element.cost, element.backlog, element.following
        )
        messages: list[tuple[MessageKind, Parts]] = [(MessageKind.BUFFER, [header, batch.serialize()])]
        known = self._schemas.get(edge)
        if known is None or not (known is batch.schema or known.equals(batch.schema)):
            if any(pa.types.is_dictionary(field.type) for field in batch.schema):
                raise NotSupported(f"edge {edge} carries a dictionary-encoded column: {batch.schema}")
            self._schemas[edge] = batch.schema
            messages.insert(0, (MessageKind.SCHEMA, [batch.schema.serialize()]))
        return messages

    @staticmethod
    def grant(credit: int) -> tuple[MessageKind, Parts]:
        return MessageKind.GRANT, [_GRANT.pack(credit)]


class DataDecoder:
    """Decodes messages from slot ``peer`` into elements and grants, in slot ``me``."""

    def __init__(self, me: int, peer: int) -> None:
        self._me = me
        self._peer = peer
        self._schemas: dict[int, pa.Schema] = {}

    def decode(self, message: Message) -> ReceivedElement | ReceivedGrant | None:
        """Decode a message. Return None for a schema, which is only stored.

        Raises:
            GenerationFailed: the message is damaged or of a kind that data links do not carry.
        """
        edge = message.stream
        try:
            if message.kind is MessageKind.BUFFER:
                return ReceivedElement(ChannelId(edge, self._peer, self._me), self._buffer(edge, message.body))
            if message.kind is MessageKind.GRANT:
                return ReceivedGrant(ChannelId(edge, self._me, self._peer), _GRANT.unpack(message.body)[0])
            if message.kind is MessageKind.ELEMENT:
                return ReceivedElement(ChannelId(edge, self._peer, self._me), _element(message.body))
            if message.kind is MessageKind.SCHEMA:
                self._schemas[edge] = pa.ipc.read_schema(message.body)
                return None
        except (struct.error, msgspec.MsgspecError, pa.ArrowException, OSError, KeyError, ValueError) as problem:
            raise GenerationFailed(
                f"slot {self._peer} sent a damaged {message.kind.name} on edge {edge}: {problem!r}"
            ) from problem
        raise GenerationFailed(f"slot {self._peer} sent a {message.kind.name} on a data link")

    def _buffer(self, edge: int, body: pa.Buffer) -> Buffer:
        generation, seq, cost, backlog, following = _BUFFER_HEADER.unpack_from(body)
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(body[_BUFFER_HEADER.size :]), self._schemas[edge])
        identity = BufferId(generation, ChannelId(edge, self._peer, self._me), seq)
        return Buffer(identity, batch, cost, backlog, following)


def _plain(element: Watermark | Barrier | EndOfPartition) -> msgspec.Struct:
    match element:
        case Watermark(timestamp_us):
            return _Watermark(timestamp_us)
        case Barrier(checkpoint, alignment, remaining_ms, elapsed_ms):
            return _Barrier(checkpoint, alignment.value, remaining_ms, elapsed_ms)
        case EndOfPartition():
            return _EndOfPartition()


def _element(body: pa.Buffer) -> Element:
    plain = _elements.decode(body)
    if isinstance(plain, _Watermark):
        return Watermark(plain.timestamp_us)
    if isinstance(plain, _Barrier):
        return Barrier(plain.checkpoint, Alignment(plain.alignment), plain.remaining_ms, plain.elapsed_ms)
    return EndOfPartition()
