"""The producer's end of channels: queues, sequence numbers, credit and overtaking barriers.

A channel's queue holds sealed elements in FIFO order; behind it lies the *tail*, small slices that still coalesce.
What must keep its place among the rows (a barrier, a capture, the end) seals the tail first. A watermark is true of all
that follows it, so it may always be queued later: the newest waits for the tail to be sealed, and follows. Elements
leave the queue only with credit, so that nothing lies in hidden buffers: what is not with the consumer is here.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from penstock.errors import ProtocolViolation
from penstock.model.elements import Barrier, Buffer, Captured, Element, EndOfPartition, Payload, Side, Watermark
from penstock.model.ids import BufferId, ChannelId, CheckpointId, GenerationId
from penstock.protocol.credit import SendCredit
from penstock.protocol.pace import Pace

SEAL_BYTES = 64 << 10
"""A tail of this size is worth a buffer of its own: coalescing copies, and a buffer's overhead is spent on few bytes
only below."""

EAGER_SHARE = 2
"""A consumer that has taken all it was sent gets the tail without delay, but not more often than at this part of the
flush interval: every buffer costs it a call of its operators, and a producer of single rows would send them singly."""

TARGET_SHARE = 2
"""Of the time that a consumer's input may take, its producers' queues may hold this part on top. It must be longer than
a round trip, else they never hold enough to become faster: a target of less than 100 ms costs speed."""

STEPS = 4
"""Slices, and buffers of a channel, that fit into the output queues: with one, nothing would wait while one is made."""

MIN_PIECE = 1 << 10
"""Buffers are never cut smaller for the sake of a target: below, a buffer costs more than its rows."""

SMOOTHED_MS = 200
"""The least time over which speed is averaged; grants come in bursts."""


@dataclass(frozen=True)
class Payloads:
    """Functions on payloads, so that the protocol need not know what payloads are.

    Attributes:
        measure: bytes of a payload, at least 1.
        concat: one payload with the rows of all, in order.
    """

    measure: Callable[[Payload], int]
    concat: Callable[[Sequence[Payload]], Payload]


def cut(payload: Payload, window: int, measure: Callable[[Payload], int]) -> Iterator[tuple[Payload, int]]:
    """Yield pieces with their costs, each at most ``window`` bytes or a single row (which then travels alone)."""
    cost = measure(payload)
    rows = payload.num_rows
    if cost <= window or rows <= 1:
        yield payload, cost
        return
    pieces = min(rows, -(-cost // window))
    size = -(-rows // pieces)
    if size == rows:
        size = rows - rows // 2
    for start in range(0, rows, size):
        yield from cut(payload.slice(start, min(size, rows - start)), window, measure)


class OutputChannel:
    """One channel at its producer.

    Args:
        channel: whose queue this is.
        generation: goes into the identity of buffers and, as their layer, into what is captured: a later Generation's
            capture is always restored behind an earlier one's leftovers, with no need to know of those.
        window: the exclusive window in bytes; also the most a buffer of several rows costs.
        flush_ms: how long an unsealed tail may wait for more rows while there is credit for it. It does for as long as
            the consumer has something else to do.
        payloads: how to measure and join payloads.

    Attributes:
        credit: its ledger.
        piece_bytes: rows are cut and coalesced to at most this; never more than the window.
        least_piece_bytes: where nothing waits, the first piece is cut to the credit that is left, if that is so much. A
            buffer that leaves tells what waits behind it; without one, the consumer would not know that anything does.
    """

    def __init__(
        self, channel: ChannelId, generation: GenerationId, window: int, flush_ms: float, payloads: Payloads
    ) -> None:
        self.channel = channel
        self.credit = SendCredit(window)
        self.piece_bytes = self.least_piece_bytes = window
        self.queued_bytes = 0
        self._generation = generation
        self._flush_ms = flush_ms
        self._payloads = payloads
        self._queue: deque[Element] = deque()
        self._tail: list[Payload] = []
        self._tail_cost = 0
        self._tail_since_ms = 0.0
        self._behind_tail: Watermark | None = None
        self._left_ms = -math.inf
        self._next_seq = 0
        self._last_barrier = 0
        self._last_watermark: int | None = None
        self._ended = False

    def add(self, payload: Payload, now_ms: float) -> int:
        """Queue rows, cut to the window or smaller; small ones wait in the tail for more. Returns what they cost."""
        self._require_open("rows")
        before = self.queued_bytes
        for piece, cost, most in self._pieces(payload):
            if self._tail and self._tail_cost + cost > most:
                self._seal()
            if not self._tail:
                self._tail_since_ms = now_ms
            self._tail.append(piece)
            self._tail_cost += cost
            self.queued_bytes += cost
            if self._tail_cost >= min(SEAL_BYTES, most // 2):
                self._seal()
        return self.queued_bytes - before

    def watermark(self, watermark: Watermark) -> None:
        """Queue a watermark, behind the tail once that is sealed; one that does not rise is dropped, adjacent ones
        coalesce."""
        self._require_open(f"watermark {watermark.timestamp_us}")
        if self._last_watermark is not None and watermark.timestamp_us <= self._last_watermark:
            return
        self._last_watermark = watermark.timestamp_us
        if self._tail:
            self._behind_tail = watermark
            return
        if self._queue and isinstance(self._queue[-1], Watermark):
            self._queue.pop()
        self._queue.append(watermark)

    def end(self) -> None:
        """Queue the end; nothing follows it but barriers."""
        self._require_open("end")
        self._seal()
        self._queue.append(EndOfPartition())
        self._ended = True

    def append(self, barrier: Barrier) -> None:
        """Queue an aligned barrier behind everything."""
        self._require_rising(barrier)
        self._seal()
        self._last_barrier = barrier.checkpoint
        self._queue.append(barrier)

    def overtake(self, barrier: Barrier) -> list[Captured]:
        """Put a barrier at the head, behind older barriers only; what it passes is captured, by reference.

        A barrier of the same checkpoint that still waits in the queue is moved; then only what lay before it is passed.
        """
        self._seal()
        start, waiting = self._ahead(barrier.checkpoint)
        passed = list(islice(self._queue, start, waiting))
        if waiting is None:
            self._require_rising(barrier)
            self._last_barrier = barrier.checkpoint
        else:
            del self._queue[waiting]
        self._queue.insert(start, barrier)
        return [
            Captured(self.channel, Side.PRODUCER, self._generation, e, 0, e.rows)
            for e in passed
            if isinstance(e, Buffer)
        ]

    def bytes_ahead(self, checkpoint: CheckpointId) -> int:
        """Return the cost of what ``overtake`` would capture."""
        start, waiting = self._ahead(checkpoint)
        ahead = sum(e.cost for e in islice(self._queue, start, waiting) if isinstance(e, Buffer))
        return ahead + (self._tail_cost if waiting is None else 0)

    def _ahead(self, checkpoint: CheckpointId) -> tuple[int, int | None]:
        """Between these places of the queue lies what a barrier passes: from the older barriers to its own place (None:
        it is not in the queue)."""
        older = [i for i, e in enumerate(self._queue) if isinstance(e, Barrier) and e.checkpoint < checkpoint]
        return (older[-1] + 1 if older else 0), self._position(checkpoint)

    def drop(self, checkpoint: CheckpointId) -> None:
        """Forget the waiting barrier of a dead checkpoint, if there is one."""
        position = self._position(checkpoint)
        if position is not None:
            del self._queue[position]

    def holds_barrier(self, checkpoint: CheckpointId) -> bool:
        """Return True if the barrier of this checkpoint is still in the queue."""
        return self._position(checkpoint) is not None

    @property
    def unconsumed(self) -> bool:
        """True if something waits here, or was sent and its credit has not come back."""
        return self.queued_bytes > 0 or not self.credit.is_whole

    @property
    def has_pending(self) -> bool:
        """True if anything is queued: rows, watermarks, barriers or the end."""
        return bool(self._queue or self._tail)

    def grant(self, credit: int) -> None:
        """The consumer allows ``credit`` more bytes."""
        if credit <= 0:
            state = f"credit {self.credit.available}"
            raise ProtocolViolation(f"output {self.channel}", state, f"grant of {credit}")
        self.credit.grant(credit)

    def pump(self, now_ms: float) -> list[Element]:
        """Remove and return what may leave now, in order."""
        leaving: list[Element] = []
        while self._queue or self.flush_at_ms() is not None:
            if not self._queue:
                due = self.flush_at_ms()
                if due is None or now_ms < due:
                    break
                self._seal()
            head = self._queue[0]
            if isinstance(head, Buffer):
                if not self.credit.covers(head.cost):
                    break
                self.credit.spend(head.cost)
                self.queued_bytes -= head.cost
                self._left_ms = now_ms
                head = Buffer(head.id, head.payload, head.cost, self.queued_bytes, self._following())
            self._queue.popleft()
            leaving.append(head)
        return leaving

    def flush_at_ms(self) -> float | None:
        """Time at which the tail must be sent although it is small; None if there is none, or no credit for it."""
        if self._queue or not self._tail or not self.credit.covers(self._tail_cost):
            return None
        latest_ms = self._tail_since_ms + self._flush_ms
        if not self.credit.is_whole:  # it has not taken all yet
            return latest_ms
        return min(latest_ms, max(self._tail_since_ms, self._left_ms + self._flush_ms / EAGER_SHARE))

    def check_invariants(self) -> None:
        """Raise AssertionError if the ledger or the order of barriers is broken."""
        costs = [e.cost for e in self._queue if isinstance(e, Buffer)]
        assert sum(costs) + self._tail_cost == self.queued_bytes, f"{self.channel}: {self.queued_bytes} queued"
        barriers = [e.checkpoint for e in self._queue if isinstance(e, Barrier)]
        assert barriers == sorted(set(barriers)), f"{self.channel}: barriers {barriers}"
        seqs = [e.id.seq for e in self._queue if isinstance(e, Buffer)]
        assert seqs == sorted(set(seqs)), f"{self.channel}: sequence {seqs}"
        assert bool(self._tail) == (self._tail_cost > 0)
        assert self._tail or self._behind_tail is None, f"{self.channel}: {self._behind_tail} waits for nothing"
        for element in self._queue:
            if isinstance(element, Buffer):
                assert element.cost <= self.credit.window or element.rows == 1, (
                    f"{self.channel}: {element.id} is too large"
                )

    def _pieces(self, payload: Payload) -> Iterator[tuple[Payload, int, int]]:
        """Yield pieces with their costs and the size that each was cut to."""
        measure = self._payloads.measure
        available = self.credit.available
        if not self._queue and self.least_piece_bytes <= available < self.piece_bytes:
            first, cost = next(cut(payload, available, measure))
            yield first, cost, available
            if first.num_rows == payload.num_rows:
                return
            payload = payload.slice(first.num_rows)
        for piece, cost in cut(payload, self.piece_bytes, measure):
            yield piece, cost, self.piece_bytes

    def _following(self) -> int:
        """The cost of the buffer behind the head; 0 if there is none, or none but the tail."""
        return next((e.cost for e in islice(self._queue, 1, None) if isinstance(e, Buffer)), 0)

    def _seal(self) -> None:
        if not self._tail:
            return
        payload = self._tail[0] if len(self._tail) == 1 else self._payloads.concat(self._tail)
        identity = BufferId(self._generation, self.channel, self._next_seq)
        self._queue.append(Buffer(identity, payload, self._tail_cost))
        self._next_seq += 1
        self._tail = []
        self._tail_cost = 0
        if self._behind_tail is not None:
            self._queue.append(self._behind_tail)
            self._behind_tail = None

    def _position(self, checkpoint: CheckpointId) -> int | None:
        for index, element in enumerate(self._queue):
            if isinstance(element, Barrier) and element.checkpoint == checkpoint:
                return index
        return None

    def _require_open(self, what: str) -> None:
        if self._ended:
            raise ProtocolViolation(f"output {self.channel}", "ended", what)

    def _require_rising(self, barrier: Barrier) -> None:
        if barrier.checkpoint <= self._last_barrier:
            raise ProtocolViolation(f"output {self.channel}", f"after barrier {self._last_barrier}", str(barrier))


class Outputs:
    """All output channels of one subtask (its ResultPartitions), by ChannelId; empty for a sink.

    Args:
        channels: in the order in which they are pumped.
        limit_bytes: beyond this many queued bytes there is no room for more input.
        target_ms: the time that a consumer's input may take. With it, the limit is what the consumers take in a part of
            it, and buffers are cut to fit; speed is measured by the credit that comes back. None: the limit stays.

    Attributes:
        limit_bytes: the limit at present.
        queued_bytes: what waits in all channels.
        added_bytes: cost of all rows that were ever added.
    """

    def __init__(self, channels: Iterable[OutputChannel], limit_bytes: int, target_ms: int | None = None) -> None:
        self._channels = {c.channel: c for c in channels}
        self._most_bytes = self.limit_bytes = limit_bytes
        self.queued_bytes = self.added_bytes = 0
        self._target_ms = target_ms
        self._pace = Pace(max(target_ms or 0, SMOOTHED_MS), by_work=False)
        self._returned_bytes = 0
        self._unconsumed_since_ms: float | None = None
        if target_ms is not None and self._channels:
            # Nothing is known yet, and the windows may leave at once. Credit comes ahead of what is consumed at first:
            # it must not pass for a high speed.
            first = sum(c.credit.window for c in self._channels.values()) // STEPS
            self._pace.observe(first, max(target_ms, SMOOTHED_MS))
            self._limit(first)

    @property
    def channels(self) -> Mapping[ChannelId, OutputChannel]:
        return self._channels

    @property
    def has_room(self) -> bool:
        """True if the subtask may consume more input."""
        return self.queued_bytes < self.limit_bytes

    @property
    def step_bytes(self) -> int:
        """The most bytes that one slice is meant to add."""
        return max(1, self.limit_bytes // STEPS)

    def add(self, channel: ChannelId, payload: Payload, now_ms: float) -> None:
        """Queue rows."""
        cost = self._channel(channel, "rows").add(payload, now_ms)
        self.queued_bytes += cost
        self.added_bytes += cost

    def watermark(self, timestamp_us: int) -> None:
        """Queue a watermark on every channel."""
        for channel in self._channels.values():
            channel.watermark(Watermark(timestamp_us))

    def append(self, barrier: Barrier) -> None:
        """Queue an aligned barrier at the tail of every channel."""
        for channel in self._channels.values():
            channel.append(barrier)

    def overtake(self, barrier: Barrier) -> list[Captured]:
        """Put a barrier at the head of every channel. Return what it passed, channel by channel in order."""
        return [captured for channel in self._channels.values() for captured in channel.overtake(barrier)]

    def overtake_waiting(self, barrier: Barrier) -> list[Captured]:
        """Overtake on those channels only that the barrier of this checkpoint has not left yet."""
        waiting = [c for c in self._channels.values() if c.holds_barrier(barrier.checkpoint)]
        return [captured for channel in waiting for captured in channel.overtake(barrier)]

    def bytes_ahead(self, checkpoint: CheckpointId) -> int:
        """Cost of what ``overtake`` would capture."""
        return sum(channel.bytes_ahead(checkpoint) for channel in self._channels.values())

    def bytes_ahead_of_waiting(self, checkpoint: CheckpointId) -> int:
        """Return the cost of what ``overtake_waiting`` would capture."""
        return sum(c.bytes_ahead(checkpoint) for c in self._channels.values() if c.holds_barrier(checkpoint))

    def end(self) -> None:
        """Queue the end on every channel."""
        for channel in self._channels.values():
            channel.end()

    def drop(self, checkpoint: CheckpointId) -> None:
        for channel in self._channels.values():
            channel.drop(checkpoint)

    def holds_barrier(self, checkpoint: CheckpointId) -> bool:
        return any(c.holds_barrier(checkpoint) for c in self._channels.values())

    def grant(self, channel: ChannelId, credit: int) -> None:
        self._channel(channel, f"grant of {credit}").grant(credit)
        self._returned_bytes += credit

    def pump(self, now_ms: float) -> list[tuple[ChannelId, Element]]:
        """Remove and return what may leave now."""
        if self._target_ms is not None:
            self._measure(self._target_ms, now_ms)
        leaving = [(c.channel, element) for c in self._channels.values() if c.has_pending for element in c.pump(now_ms)]
        self.queued_bytes -= sum(element.cost for _, element in leaving if isinstance(element, Buffer))
        return leaving

    def flush_at_ms(self) -> float | None:
        """The earliest time at which ``pump`` would send a small tail."""
        due = [at for c in self._channels.values() if c.has_pending and (at := c.flush_at_ms()) is not None]
        return min(due, default=None)

    def check_invariants(self) -> None:
        for channel in self._channels.values():
            channel.check_invariants()
        assert self.queued_bytes == sum(c.queued_bytes for c in self._channels.values())

    def _measure(self, target_ms: int, now_ms: float) -> None:
        since = self._unconsumed_since_ms
        if since is not None and now_ms > since:
            self._pace.observe(self._returned_bytes, now_ms - since)
            self._returned_bytes = 0
            taken = self._pace.within(target_ms / TARGET_SHARE, self._most_bytes)
            if taken is not None:
                self._limit(taken)
        if not any(c.unconsumed for c in self._channels.values()):
            self._unconsumed_since_ms = None
        elif since is None or now_ms > since:
            self._unconsumed_since_ms = now_ms

    def _limit(self, limit_bytes: int) -> None:
        shares = STEPS * len(self._channels)
        self.limit_bytes = min(self._most_bytes, max(limit_bytes, shares * MIN_PIECE))
        for channel in self._channels.values():
            channel.piece_bytes = min(channel.credit.window, max(1, self.limit_bytes // shares))
            channel.least_piece_bytes = min(channel.piece_bytes, MIN_PIECE)

    def _channel(self, channel: ChannelId, event: str) -> OutputChannel:
        if channel not in self._channels:
            raise ProtocolViolation("outputs", f"channels {list(self._channels)}", f"{event} on {channel}")
        return self._channels[channel]
