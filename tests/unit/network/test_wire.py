"""Frames and the messages in them: what goes in comes out, whatever the cuts."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GenerationFailed, NotSupported
from penstock.model.elements import Alignment, Barrier, Buffer, Element, EndOfPartition, Watermark
from penstock.model.ids import BufferId, ChannelId
from penstock.network import frames as wire
from penstock.network.element_codec import DataDecoder, DataEncoder, ReceivedElement, ReceivedGrant
from penstock.network.frames import HEADER, MAX_MESSAGE_BYTES, FrameReader, FrameWriter, Message, MessageKind


def read(reader: FrameReader, data: bytes, cuts: Iterable[int]) -> list[Message]:
    """Feed ``data`` in pieces of the given sizes, as a socket might; the last piece is the rest."""
    out: list[Message] = []
    rest = memoryview(data)
    sizes = iter(cuts)
    while rest:
        room = reader.writable()
        count = min(len(room), len(rest), max(1, next(sizes, len(rest))))
        room[:count] = rest[:count]
        rest = rest[count:]
        out += reader.received(count)
    return out


def written(writer: FrameWriter) -> bytes:
    return b"".join(bytes(piece) for piece in writer.frames(1 << 40))


messages = st.lists(
    st.tuples(st.sampled_from(list(MessageKind)), st.integers(0, 3), st.binary(max_size=300)), min_size=1, max_size=20
)


@given(messages, st.lists(st.integers(1, 40), max_size=200))
def test_every_stream_arrives_in_order_whatever_the_cuts(
    sent: list[tuple[MessageKind, int, bytes]], cuts: list[int]
) -> None:
    writer = FrameWriter()
    for kind, stream, body in sent:
        writer.push(kind, stream, [body[:3], body[3:]])
    got = read(FrameReader(MAX_MESSAGE_BYTES), written(writer), cuts)
    for stream in range(4):
        expected = [(kind, body) for kind, s, body in sent if s == stream]
        assert [(m.kind, m.body.to_pybytes()) for m in got if m.stream == stream] == expected


def test_fed_byte_by_byte() -> None:
    writer = FrameWriter()
    writer.push(MessageKind.CONTROL, 0, [b"one"])
    writer.push(MessageKind.CONTROL, 0, [b""])
    writer.push(MessageKind.CONTROL, 0, [b"three"])
    data = written(writer)
    got = read(FrameReader(100), data, [1] * len(data))
    assert [m.body.to_pybytes() for m in got] == [b"one", b"", b"three"]


def test_a_large_message_lets_others_pass_between_its_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FRAGMENT_BYTES", 1000)
    writer = FrameWriter()
    big = bytes(range(256)) * 20
    writer.push(MessageKind.BUFFER, 1, [big])
    writer.push(MessageKind.ELEMENT, 2, [b"barrier"])
    got = read(FrameReader(MAX_MESSAGE_BYTES), written(writer), [])
    assert [m.stream for m in got] == [2, 1]
    assert got[1].body.to_pybytes() == big


def test_large_bodies_are_received_in_place_and_aligned() -> None:
    writer = FrameWriter()
    body = b"x" * (3 * wire.FRAGMENT_BYTES + 17)
    writer.push(MessageKind.BUFFER, 5, [body])
    (message,) = read(FrameReader(MAX_MESSAGE_BYTES), written(writer), [70_000] * 100)
    assert message.body.address % 64 == 0
    assert message.body.to_pybytes() == body


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (HEADER.pack(4, 2000, 0, 1), "at most 1000"),
        (HEADER.pack(0xFFFFFFFF, 0xFFFFFFFF, 0, 1), "at most 1000"),
        (HEADER.pack(4, 0, 0, 77), "unknown kind 77"),
        (HEADER.pack(1, 9, 0, 1) + b"x" + HEADER.pack(5, 5, 0, 1), "does not continue"),
        (HEADER.pack(0, 9, 0, 1), "an empty fragment"),
        (HEADER.pack(1, 9, 0, 1) + b"x" + HEADER.pack(0, 9, 0, 1), "an empty fragment"),
    ],
)
def test_malformed_frames_are_refused_before_memory_is_taken(header: bytes, reason: str) -> None:
    with pytest.raises(GenerationFailed, match=reason):
        read(FrameReader(1000), header + b"abcd", [])


def batch(rows: int, start: int = 0) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array(range(start, start + rows), pa.int64()),
            "text": pa.array([None if i % 3 == 0 else f"row {i}" for i in range(rows)], pa.string()),
        }
    )


elements: st.SearchStrategy[Element] = st.one_of(
    st.builds(Watermark, st.integers(-(2**63), 2**63 - 1)),
    st.builds(Barrier, st.integers(1, 10**9), st.sampled_from(Alignment), st.none() | st.integers(0, 10**6)),
    st.just(EndOfPartition()),
    st.builds(
        lambda rows, offset, seq: Buffer(
            BufferId(7, ChannelId(3, 0, 1), seq), batch(rows + offset).slice(offset), rows * 20, seq * 3, seq * 2
        ),
        st.integers(1, 50),
        st.integers(0, 5),
        st.integers(0, 2**40),
    ),
)


@given(st.lists(elements, max_size=20), st.lists(st.integers(1, 500), max_size=100))
def test_elements_travel_unchanged(sent: list[Element], cuts: list[int]) -> None:
    encoder, decoder, writer = DataEncoder(), DataDecoder(me=1, peer=0), FrameWriter()
    for element in sent:
        for kind, parts in encoder.element(3, element):
            writer.push(kind, 3, parts)
    got = [decoder.decode(m) for m in read(FrameReader(MAX_MESSAGE_BYTES), written(writer), cuts)]
    assert [g for g in got if g is not None] == [ReceivedElement(ChannelId(3, 0, 1), element) for element in sent]


def test_a_slice_travels_without_its_parent() -> None:
    encoder = DataEncoder()
    whole = batch(100_000)
    buffer = Buffer(BufferId(1, ChannelId(0, 0, 1), 1), whole.slice(50_000, 10), 200)
    parts = encoder.element(0, buffer)[-1][1]
    assert sum(memoryview(part).nbytes for part in parts) < 2_000


def test_the_schema_is_sent_once_and_again_when_it_changes() -> None:
    encoder = DataEncoder()

    def kinds(payload: pa.RecordBatch) -> list[MessageKind]:
        return [kind for kind, _ in encoder.element(0, Buffer(BufferId(1, ChannelId(0, 0, 1), 1), payload, 1))]

    assert kinds(batch(2)) == [MessageKind.SCHEMA, MessageKind.BUFFER]
    assert kinds(batch(3)) == [MessageKind.BUFFER]
    assert kinds(pa.record_batch({"other": [1]})) == [MessageKind.SCHEMA, MessageKind.BUFFER]
    with pytest.raises(NotSupported, match="dictionary"):
        kinds(pa.record_batch({"d": pa.array(["a"]).dictionary_encode()}))


def test_grants_name_the_producers_channel() -> None:
    kind, parts = DataEncoder.grant(4096)
    message = Message(kind, 9, pa.py_buffer(b"".join(bytes(p) for p in parts)))
    assert DataDecoder(me=0, peer=1).decode(message) == ReceivedGrant(ChannelId(9, 0, 1), 4096)


@pytest.mark.parametrize("kind", [MessageKind.BUFFER, MessageKind.ELEMENT, MessageKind.GRANT, MessageKind.SCHEMA])
def test_damaged_messages_are_named(kind: MessageKind) -> None:
    decoder = DataDecoder(me=0, peer=4)
    with pytest.raises(GenerationFailed, match=f"slot 4 sent a damaged {kind.name} on edge 2"):
        decoder.decode(Message(kind, 2, pa.py_buffer(b"\xff" * 90)))


def test_a_stranger_has_one_stream_for_what_is_not_whole() -> None:
    """So what it makes a reader hold is one message."""
    reader = FrameReader(1000, streams=1)
    begun = HEADER.pack(1, 500, 1, MessageKind.HANDSHAKE) + b"x"
    assert read(reader, begun, []) == []
    with pytest.raises(GenerationFailed, match="on stream 2 amid another stream's"):
        read(reader, HEADER.pack(1, 500, 2, MessageKind.HANDSHAKE) + b"x", [])
