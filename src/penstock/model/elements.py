"""Elements of a channel, in FIFO order: Buffer, Watermark, Barrier, EndOfPartition.

The only reordering ever allowed is an unaligned barrier overtaking buffers and watermarks, and what it
overtakes becomes part of the snapshot. A barrier never overtakes an older barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.model.ids import BufferId, ChannelId, CheckpointId


class Payload(Protocol):
    """An immutable batch of rows. ``pyarrow.RecordBatch`` is one; protocol tests use tuples in a wrapper."""

    @property
    def num_rows(self) -> int: ...

    def slice(self, offset: int = 0, length: int | None = None) -> Payload:
        """Rows ``[offset, offset + length)`` without copying."""
        ...


@dataclass(frozen=True, slots=True)
class Buffer:
    """An immutable, self-describing batch. ``cost`` (bytes) is fixed by the producer; both ends account with it.

    ``backlog`` announces the bytes that wait behind it at the producer, ``following`` the cost of the next buffer if
    that is settled already (else 0); credit is given by them. They travel in the buffer's header and are no part of its
    content (a captured buffer may carry any).
    """

    id: BufferId
    payload: Payload
    cost: int
    backlog: int = 0
    following: int = 0

    @property
    def rows(self) -> int:
        return self.payload.num_rows


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row with event time (microseconds since the epoch) below ``timestamp_us`` is expected behind it."""

    timestamp_us: int


START_OF_TIME_US = -(1 << 63)
"""The watermark of an end without any row: no window closes by it, but it counts where the least one rules."""
END_OF_TIME_US = (1 << 63) - 1
"""The watermark that ends event time: no row comes behind it, whatever its time, and every window closes."""


class Alignment(Enum):
    """Alignment mode of a checkpoint.

    ``AUTO`` occurs in policies only: the barriers of such a checkpoint are aligned ones with a time limit, and become
    unaligned when it is exceeded.
    """

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Ends epoch ``checkpoint``.

    ``remaining_ms``: what is left of the time it may be aligned, reduced at each hop by the time spent there, so that
    no clocks need to agree (None: it stays aligned; unused when unaligned). ``elapsed_ms``: the time from the trigger
    to its departure, without what it spent on the wire.
    """

    checkpoint: CheckpointId
    alignment: Alignment
    remaining_ms: int | None = None
    elapsed_ms: int = 0


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """The producer will send no more rows and watermarks; barriers still pass."""


Element = Buffer | Watermark | Barrier | EndOfPartition


class Side(Enum):
    """Queue in which a captured element waited: the consumer's input queue or the producer's output queue."""

    CONSUMER = "consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class Captured:
    """Captured in-flight rows ``[offset, offset + rows)`` of one buffer, belonging to one checkpoint.

    Restore order on a channel: by layer, then consumer side before producer side, then ``buffer.id.seq``, then offset.
    """

    channel: ChannelId
    side: Side
    layer: int
    buffer: Buffer
    offset: int
    rows: int

    @property
    def cost(self) -> int:
        """The share of these rows in the buffer's bytes, as its producer measured them."""
        return self.buffer.cost * self.rows // max(1, self.buffer.rows)
