"""Elements of a channel: Buffer, Watermark, Barrier, EndOfPartition.

Elements stay in FIFO order, with one exception: an unaligned barrier may overtake buffers and watermarks. The rows that
it overtakes become part of the snapshot. A barrier never overtakes an older barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.model.ids import BufferId, ChannelId, CheckpointId


class Payload(Protocol):
    """An immutable batch of rows, such as ``pyarrow.RecordBatch``. Protocol tests use wrapped tuples."""

    @property
    def num_rows(self) -> int: ...

    def slice(self, offset: int = 0, length: int | None = None) -> Payload:
        """Return rows ``[offset, offset + length)`` without copying."""
        ...


@dataclass(frozen=True, slots=True)
class Buffer:
    """An immutable batch of rows with its identity.

    Attributes:
        cost: size in bytes, measured by the producer. Both ends of the channel use it for credit accounting.
        backlog: bytes that are queued after this buffer at the producer. The consumer uses it to grant credit.
        following: cost of the producer's next buffer if it is already determined, else 0. Used to grant credit, too.

    ``backlog`` and ``following`` travel in the buffer's header and are not part of its content. In a captured buffer
    they have no meaning.
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
    """Announces that no later row in the channel is expected to have an event time below ``timestamp_us``.

    ``timestamp_us`` is in microseconds since 1970-01-01.
    """

    timestamp_us: int


START_OF_TIME_US = -(1 << 63)
"""Watermark of an input that ended without any row. It closes no window but counts in a minimum over inputs."""
END_OF_TIME_US = (1 << 63) - 1
"""Watermark that ends event time: no row follows it, and every window closes."""


class Alignment(Enum):
    """Alignment mode of a checkpoint.

    ``AUTO`` occurs only in policies. Such a checkpoint starts with aligned barriers that have a time limit, and becomes
    unaligned when the limit is exceeded.
    """

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Barrier that ends epoch ``checkpoint``.

    Attributes:
        remaining_ms: time for which the barrier may still be aligned. Each hop subtracts the time spent there, so
            clocks need not agree. None: the barrier stays aligned. Not used by unaligned barriers.
        elapsed_ms: time from the trigger until the barrier was sent, without the time on the network.
    """

    checkpoint: CheckpointId
    alignment: Alignment
    remaining_ms: int | None = None
    elapsed_ms: int = 0


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """Announces that the producer will send no more rows or watermarks. Barriers may still follow."""


Element = Buffer | Watermark | Barrier | EndOfPartition


class Side(Enum):
    """Queue that held a captured element: the consumer's input queue or the producer's output queue."""

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
        """Size of these rows in bytes: their share of the buffer's cost."""
        return self.buffer.cost * self.rows // max(1, self.buffer.rows)
