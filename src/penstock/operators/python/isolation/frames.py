"""Protocol of a slot and a function process over their socket: frames of a kind, a length and a payload.

::

    slot                                   process
    SPECS (once)                    ->
                                    <-     DONE | FAILED
    PROCESS rows | FINISH           ->
                                    <-     ROWS, any number of times
                                    <-     DONE | FAILED
    CLOSE                           ->     ends

There is at most one request under way. Rows travel as an Arrow IPC stream of one batch, so they say what they are.
Specs are pickled: both ends are one program, and the socket is a pair that nobody else can reach.
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
    """Send a frame, blocking. ``payload``: anything with the buffer protocol.

    Raises:
        OSError: the other end is gone.
    """
    view = memoryview(payload).cast("B")
    connection.sendall(_HEAD.pack(kind, view.nbytes))
    if view.nbytes:
        connection.sendall(view)


def receive(connection: socket.socket) -> tuple[Kind, pa.Buffer]:
    """Receive the next frame, blocking.

    Raises:
        EOFError: the other end is gone, perhaps in the middle of a frame.
        OSError: the connection broke.
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
    """Return the batch as a payload; of a slice only its own rows."""
    measured = pa.MockOutputStream()  # a growing stream would copy its content repeatedly
    _write(batch, measured)
    buffer = pa.allocate_buffer(measured.size())
    _write(batch, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def decode(payload: pa.Buffer) -> pa.RecordBatch:
    """Return the batch of a payload, without a copy."""
    return pa.ipc.open_stream(payload).read_next_batch()
