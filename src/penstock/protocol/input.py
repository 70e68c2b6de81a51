"""Consumer end of one channel: a queue that is read by row ranges."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.errors import ProtocolViolation
from penstock.model.elements import Barrier, Buffer, Captured, Element, EndOfPartition, Payload, Side, Watermark
from penstock.model.ids import ChannelId, CheckpointId, GenerationId
from penstock.protocol.credit import ReceiveCredit


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows ``[offset, offset + rows)`` of a buffer, taken by the subtask. ``payload`` holds just these rows."""

    channel: ChannelId
    payload: Payload
    rows: int
    position: str


class InputChannel:
    """Consumer end of one channel. At creation the whole exclusive window is granted.

    Attributes:
        credit: credit ledger of the channel.
        blocked_by: the checkpoint whose aligned barrier was consumed; None while the channel is read.
        ended: True if everything that the producer will ever send was consumed.
    """

    def __init__(
        self, channel: ChannelId, generation: GenerationId, window: int, watermark_us: int | None = None
    ) -> None:
        self.channel = channel
        self.credit = ReceiveCredit(window)
        self.watermark_us = watermark_us
        self.blocked_by: CheckpointId | None = None
        self.ended = False
        self._generation = generation
        self._queue: deque[Element] = deque()
        self._offset = 0
        self._last_seq = -1
        self._last_barrier = 0
        self._end_arrived = False

    @property
    def head(self) -> Element | None:
        """The next element to consume. None if there is none or the channel is blocked."""
        return self._queue[0] if self._queue and self.blocked_by is None else None

    def arrive(self, element: Element) -> None:
        """Queue an element. An illegal element raises ProtocolViolation and changes nothing."""
        self._check_arrival(element)
        match element:
            case Buffer():
                self.credit.arrive(element.cost, element.backlog, element.following)
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
        """Take at most ``max_rows`` rows of the head buffer. Return them and the number of bytes freed.

        Bytes are freed, all at once, when the last row of a buffer is taken; until then the number is 0.
        """
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
        self.credit.free(head.cost)
        return taken, head.cost

    def take_control(self) -> Element:
        """Remove the head, which must not be a buffer, and apply it to the channel."""
        head = self._queue.popleft()
        match head:
            case Watermark(timestamp_us):
                if self.watermark_us is None or timestamp_us > self.watermark_us:
                    self.watermark_us = timestamp_us
            case EndOfPartition():
                self.ended = True
            case Barrier():
                self.block(head.checkpoint)
            case Buffer():
                raise AssertionError("a buffer is taken by rows")
        return head

    def block(self, checkpoint: CheckpointId) -> None:
        """Stop reading the channel until ``unblock``."""
        self.blocked_by = checkpoint
        self.credit.is_blocked = True

    def unblock(self) -> None:
        """Resume reading the channel."""
        self.blocked_by = None
        self.credit.is_blocked = False

    def capture(self, before: CheckpointId | None) -> list[Captured]:
        """Return references to the unread rows in front of a checkpoint's barrier (None: all unread rows)."""
        captured = []
        for index, element in enumerate(self._queue):
            if isinstance(element, Barrier) and element.checkpoint == before:
                break
            if isinstance(element, Buffer):
                offset = self._offset if index == 0 else 0
                captured.append(self.reference(element, offset))
        return captured

    def reference(self, buffer: Buffer, offset: int = 0) -> Captured:
        """Return a buffer of this channel as captured data, starting at row ``offset``."""
        return Captured(self.channel, Side.CONSUMER, self._generation, buffer, offset, buffer.rows - offset)

    def holds_barrier(self, checkpoint: CheckpointId) -> bool:
        return any(isinstance(e, Barrier) and e.checkpoint == checkpoint for e in self._queue)

    def drop(self, checkpoint: CheckpointId) -> None:
        """Remove the queued barrier of a checkpoint, if there is one."""
        for index, element in enumerate(self._queue):
            if isinstance(element, Barrier) and element.checkpoint == checkpoint:
                del self._queue[index]
                return

    def check_invariants(self) -> None:
        """Raise AssertionError if the ledger or the order of barriers is broken."""
        costs = [e.cost for e in self._queue if isinstance(e, Buffer)]
        queued = self.credit.queued_bytes
        assert sum(costs) == queued, f"{self.channel}: ledger {queued}, queue {sum(costs)}"
        assert self.credit.is_blocked == (self.blocked_by is not None)
        barriers = [e.checkpoint for e in self._queue if isinstance(e, Barrier)]
        assert barriers == sorted(set(barriers)), f"{self.channel}: barriers {barriers}"
        head = self._queue[0] if self._queue else None
        assert self._offset == 0 or (isinstance(head, Buffer) and self._offset < head.rows)

    def _check_arrival(self, element: Element) -> None:
        problem = ""
        if self._end_arrived and not isinstance(element, Barrier):
            problem = "ended"
        elif isinstance(element, Buffer):
            if not self.credit.covers(element.cost):
                problem = f"granted {self.credit.granted}"
            elif element.id.seq <= self._last_seq or element.id.generation != self._generation:
                problem = f"generation {self._generation}, after seq {self._last_seq}"
        elif isinstance(element, Barrier) and element.checkpoint <= self._last_barrier:
            problem = f"after barrier {self._last_barrier}"
        if problem:
            what = element.id if isinstance(element, Buffer) else element
            raise ProtocolViolation(f"input {self.channel}", problem, str(what))
