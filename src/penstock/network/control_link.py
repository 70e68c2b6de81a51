"""Control link: MessagePack frames between a slot and its driver, FIFO in both directions."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from penstock.decoding import msgpack_decoder
from penstock.errors import GenerationFailed
from penstock.network.frames import Message, MessageKind
from penstock.network.messages import ToDriver, ToSlot
from penstock.network.transport import Link

_encoder = msgspec.msgpack.Encoder()
_from_slot = msgpack_decoder(ToDriver)
_from_driver = msgpack_decoder(ToSlot)


def send(link: Link, message: ToDriver | ToSlot) -> None:
    """Queue a message. Never blocks; any thread may call it."""
    link.send(MessageKind.CONTROL, 0, [_encoder.encode(message)])


def read_from_slot(message: Message) -> ToDriver:
    """Decode a control message of a slot. Raises GenerationFailed if it is damaged or not a control message."""
    decoded: ToDriver = _decode(_from_slot, message)
    return decoded


def read_from_driver(message: Message) -> ToSlot:
    """Decode a control message of the driver. Raises GenerationFailed if it is damaged or not a control message."""
    decoded: ToSlot = _decode(_from_driver, message)
    return decoded


def _decode(decoder: msgspec.msgpack.Decoder[Any], message: Message) -> Any:
    if message.kind is not MessageKind.CONTROL:
        raise GenerationFailed(f"a {message.kind.name} message on a control link")
    body: pa.Buffer = message.body
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as problem:
        raise GenerationFailed(f"damaged control message: {problem}") from problem
