"""The consumer's end of one channel: a queue read by row ranges, and the credit ledger.

Ledger: ``granted`` is what the producer may still send, ``queued_bytes`` what lies here. Arrival moves bytes from one
to the other, so their sum changes only by grants and by consumption; a row larger than the window puts ``granted``
into debt until it is consumed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.errors import ProtocolViolation
from penstock.model.elements import Barrier, Buffer, Captured, Element, EndOfPartition, Payload, Side, Watermark
from penstock.model.ids import ChannelId, CheckpointId, GenerationId


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows ``[offset, offset + rows)`` of a buffer, now the subtask's own. ``payload`` holds just these rows."""

    channel: ChannelId
    payload: Payload
    rows: int
    position: str


class InputChannel:
    """One channel at its consumer. Created with the whole exclusive window granted."""

    def __init__(
        self, channel: ChannelId, generation: GenerationId, window: int, watermark_us: int | None = None
    ) -> None:
        self.channel = channel
        self.granted = window
        self.queued_bytes = 0
        self.backlog = 0
        self.following = 0
        self.watermark_us = watermark_us
        self.blocked_by: CheckpointId | None = None
        self.ended = False
        self._generation = generation
        self._window = window
        self._queue: deque[Element] = deque()
        self._offset = 0
        self._last_seq = -1
        self._last_barrier = 0
        self._end_arrived = False

    @property
    def held(self) -> int:
        """Bytes of the gate's budget that this channel takes."""
        return max(self._window, self.granted + self.queued_bytes)

    @property
    def deficit(self) -> int:
        """What is missing to the exclusive window."""
        return max(0, self._window - self.granted - self.queued_bytes)

    @property
    def expected(self) -> int:
        """Bytes that are here or allowed to come; the window of a channel that is quiet is not expected to be used."""
        return self.queued_bytes + max(0, self.granted) if self.queued_bytes or self.backlog else 0

    @property
    def least(self) -> int:
        """The credit that a producer must have once nothing is queued here: without it, it might wait for ever."""
        return min(self._window, self.following or self._window)

    @property
    def head(self) -> Element | None:
        """The next element to consume, or None if there is none or the channel is blocked."""
        return self._queue[0] if self._queue and self.blocked_by is None else None

    def arrive(self, element: Element) -> None:
        """Queue an element; illegal ones change nothing."""
        self._check_arrival(element)
        match element:
            case Buffer():
                self.granted -= element.cost
                self.queued_bytes += element.cost
                self.backlog = element.backlog
                self.following = element.following
                self._last_seq = element.id.seq
            case Barrier():
                self._last_barrier = element.checkpoint
            case EndOfPartition():
                self._end_arrived = True
            case Watermark():
                if self._queue and isinstance(self._queue[-1], Watermark):
                    self._queue.pop()
        self._queue.append(element)

    def take_rows(self, max_rows: int) -> tuple[RowRange, int]:
        """At most ``max_rows`` rows of the head buffer, and the bytes set free (its cost, with its last row)."""
        head = self._queue[0]
        assert isinstance(head, Buffer)
        rows = min(max_rows, head.rows - self._offset)
        whole = rows == head.rows
        payload = head.payload if whole else head.payload.slice(self._offset, rows)
        taken = RowRange(self.channel, payload, rows, f"{self.channel}#{head.id.seq}[{self._offset}:+{rows}]")
        self._offset += rows
        if self._offset < head.rows:
            return taken, 0
        self._queue.popleft()
        self._offset = 0
        self.queued_bytes -= head.cost
        return taken, head.cost

    def take_control(self) -> Element:
        """Remove the head, which is not a buffer, and let it act on the channel."""
        head = self._queue.popleft()
        match head:
            case Watermark(timestamp_us):
                if self.watermark_us is None or timestamp_us > self.watermark_us:
                    self.watermark_us = timestamp_us
            case EndOfPartition():
                self.ended = True
            case Barrier():
                self.blocked_by = head.checkpoint
            case Buffer():
                raise AssertionError("a buffer is taken by rows")
        return head

    def capture(self, before: CheckpointId | None) -> list[Captured]:
        """Reference the unread rows that wait before the barrier of a checkpoint (None: all)."""
        captured = []
        for index, element in enumerate(self._queue):
            if isinstance(element, Barrier) and element.checkpoint == before:
                break
            if isinstance(element, Buffer):
                offset = self._offset if index == 0 else 0
                captured.append(self.reference(element, offset))
        return captured

    def reference(self, buffer: Buffer, offset: int = 0) -> Captured:
        """A captured buffer of this channel, from row ``offset``."""
        return Captured(self.channel, Side.CONSUMER, self._generation, buffer, offset, buffer.rows - offset)

    def holds_barrier(self, checkpoint: CheckpointId) -> bool:
        return any(isinstance(e, Barrier) and e.checkpoint == checkpoint for e in self._queue)

    def drop(self, checkpoint: CheckpointId) -> None:
        """Forget a waiting barrier."""
        for index, element in enumerate(self._queue):
            if isinstance(element, Barrier) and element.checkpoint == checkpoint:
                del self._queue[index]
                return

    def check_invariants(self) -> None:
        """Raise AssertionError if the ledger or the order of barriers is broken."""
        costs = [e.cost for e in self._queue if isinstance(e, Buffer)]
        assert sum(costs) == self.queued_bytes, f"{self.channel}: ledger {self.queued_bytes}, queue {sum(costs)}"
        barriers = [e.checkpoint for e in self._queue if isinstance(e, Barrier)]
        assert barriers == sorted(set(barriers)), f"{self.channel}: barriers {barriers}"
        head = self._queue[0] if self._queue else None
        assert self._offset == 0 or (isinstance(head, Buffer) and self._offset < head.rows)

    def _check_arrival(self, element: Element) -> None:
        problem = ""
        if self._end_arrived and not isinstance(element, Barrier):
            problem = "ended"
        elif isinstance(element, Buffer):
            oversize = element.cost > self._window and self.granted >= self._window
            if element.cost > self.granted and not oversize:
                problem = f"granted {self.granted}"
            elif element.id.seq <= self._last_seq or element.id.generation != self._generation:
                problem = f"generation {self._generation}, after seq {self._last_seq}"
        elif isinstance(element, Barrier) and element.checkpoint <= self._last_barrier:
            problem = f"after barrier {self._last_barrier}"
        if problem:
            what = element.id if isinstance(element, Buffer) else element
            raise ProtocolViolation(f"input {self.channel}", problem, str(what))
