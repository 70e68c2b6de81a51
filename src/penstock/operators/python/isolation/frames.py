"""Protocol between a slot and a function process over a socket. A frame has a kind, a length and a payload.

::

    slot                                   process
    SPECS (once)                    ->
                                    <-     DONE | FAILED
    PROCESS rows | FINISH           ->
                                    <-     ROWS, any number of times
                                    <-     DONE | FAILED
    CLOSE                           ->     ends

At most one request is pending. Rows are sent as an Arrow IPC stream of one batch, which includes the schema. Specs are
pickled: both ends run the same program, and no other process can reach the socket pair.
"""

from __future__ import annotations

import socket
import struct
from enum import IntEnum
from typing import Any

import pyarrow as pa

_HEAD = struct.Struct("<BQ")


class Kind(IntEnum):
    SPECS = 1
    PROCESS = 2
    FINISH = 3
    CLOSE = 4
    ROWS = 5
    DONE = 6
    FAILED = 7


def send(connection: socket.socket, kind: Kind, payload: Any = b"") -> None:
    """Send a frame. Blocks until it is sent. ``payload``: any object with the buffer protocol.

    Raises:
        OSError: the other end closed the connection.
    """
    view = memoryview(payload).cast("B")
    connection.sendall(_HEAD.pack(kind, view.nbytes))
    if view.nbytes:
        connection.sendall(view)


def receive(connection: socket.socket) -> tuple[Kind, pa.Buffer]:
    """Receive the next frame. Blocks until it has arrived.

    Raises:
        EOFError: the other end closed the connection, possibly in the middle of a frame.
        OSError: the connection failed.
    """
    head = bytearray(_HEAD.size)
    _fill(connection, memoryview(head))
    kind, length = _HEAD.unpack(head)
    payload = pa.allocate_buffer(length)
    _fill(connection, memoryview(payload).cast("B"))
    return Kind(kind), payload


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view.nbytes:
        received = connection.recv_into(view)
        if received == 0:
            raise EOFError
        view = view[received:]


def encode(batch: pa.RecordBatch) -> pa.Buffer:
    """Encode a batch as a payload. If the batch is a slice, only its own rows are encoded."""
    measured = pa.MockOutputStream()  # a growing stream would copy its content repeatedly
    _write(batch, measured)
    buffer = pa.allocate_buffer(measured.size())
    _write(batch, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def decode(payload: pa.Buffer) -> pa.RecordBatch:
    """Decode the batch of a payload, without a copy."""
    return pa.ipc.open_stream(payload).read_next_batch()
