"""Producer end of channels: queues, sequence numbers, credit and overtaking barriers.

The queue of a channel holds sealed elements in FIFO order. After them comes the *tail*: small slices that are still
being coalesced. An element with a fixed position among the rows (a barrier, a capture, the end) seals the tail first. A
watermark may always be queued later, because it also holds for all rows that follow it. So the newest watermark waits
until the tail is sealed, and then follows it. Elements leave the queue only with credit, so there are no hidden
buffers: everything that the consumer does not have is here.
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
"""Size in bytes from which a tail is sealed as a buffer of its own.

Coalescing copies the rows. It pays only for buffers so small that their overhead dominates.
"""

EAGER_SHARE = 2
"""Divisor of the flush interval for a consumer that has taken everything it was sent.

Such a consumer gets the tail without delay, but at most once per this part of the flush interval. Each buffer costs the
consumer a call of its operators, and a producer of single rows would otherwise send each row alone.
"""

TARGET_SHARE = 2
"""Divisor of the target time: producers' queues may additionally hold the bytes consumed in this part of it.

The part must be longer than a round trip. Otherwise the queues never hold enough to speed up: a target below 100 ms
costs throughput.
"""

STEPS = 4
"""Number of slices, and of buffers per channel, that fit into the output queues.

With only one, nothing would be queued while the next one is made.
"""

MIN_PIECE = 1 << 10
"""Minimum size in bytes to which buffers are cut for the target time. A smaller buffer costs more than its rows."""

SMOOTHED_MS = 200
"""Minimum time in milliseconds over which speed is averaged, because grants come in bursts."""


@dataclass(frozen=True)
class Payloads:
    """Functions on payloads, so that the protocol does not depend on the type of a payload.

    Attributes:
        measure: returns the bytes of a payload, at least 1.
        concat: returns one payload with the rows of all payloads, in order.
    """

    measure: Callable[[Payload], int]
    concat: Callable[[Sequence[Payload]], Payload]


def cut(payload: Payload, window: int, measure: Callable[[Payload], int]) -> Iterator[tuple[Payload, int]]:
    """Yield pieces of a payload with their costs.

    Each piece has at most ``window`` bytes or is a single row, which then travels alone.
    """
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
    """Producer end of one channel.

    Args:
        channel: id of the channel.
        generation: part of the identity of buffers, and the layer of captured data. Captures of a later generation are
            therefore always restored after those that remain of an earlier one.
        window: the exclusive window in bytes; also the maximum cost of a buffer of several rows.
        flush_ms: maximum time for which an unsealed tail with credit waits for more rows. It waits that long while the
            consumer has other input to process.
        payloads: functions to measure and join payloads.

    Attributes:
        credit: credit ledger of the channel.
        piece_bytes: maximum size to which rows are cut and coalesced; never more than the window.
        least_piece_bytes: if the queue is empty, the first piece is cut to the remaining credit, provided that this is
            at least so many bytes. That buffer can leave at once, and it announces the backlog: without a buffer the
            consumer would not know of it.
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
        """Queue rows, cut to at most the window, and return their cost in bytes.

        Small pieces wait in the tail for more.
        """
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
        """Queue a watermark, or keep it until the tail is sealed.

        A watermark that does not rise is dropped. Adjacent watermarks are coalesced.
        """
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
        """Queue the end of the partition. Only barriers may follow it."""
        self._require_open("end")
        self._seal()
        self._queue.append(EndOfPartition())
        self._ended = True

    def append(self, barrier: Barrier) -> None:
        """Queue an aligned barrier after everything else."""
        self._require_rising(barrier)
        self._seal()
        self._last_barrier = barrier.checkpoint
        self._queue.append(barrier)

    def overtake(self, barrier: Barrier) -> list[Captured]:
        """Insert a barrier at the head, after older barriers only. Return references to the rows that it overtakes.

        If an aligned barrier of the same checkpoint is still queued, it is moved to the head, and only the rows in
        front of it are overtaken.
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
        """Return the cost of the rows that ``overtake`` would capture."""
        start, waiting = self._ahead(checkpoint)
        ahead = sum(e.cost for e in islice(self._queue, start, waiting) if isinstance(e, Buffer))
        return ahead + (self._tail_cost if waiting is None else 0)

    def _ahead(self, checkpoint: CheckpointId) -> tuple[int, int | None]:
        """Return the start and the end of the part of the queue that a barrier would overtake.

        It starts after the older barriers and ends at the checkpoint's own barrier (None: its barrier is not queued).
        """
        older = [i for i, e in enumerate(self._queue) if isinstance(e, Barrier) and e.checkpoint < checkpoint]
        return (older[-1] + 1 if older else 0), self._position(checkpoint)

    def drop(self, checkpoint: CheckpointId) -> None:
        """Remove the queued barrier of an aborted checkpoint, if there is one."""
        position = self._position(checkpoint)
        if position is not None:
            del self._queue[position]

    def holds_barrier(self, checkpoint: CheckpointId) -> bool:
        """Return True if the barrier of this checkpoint is still queued."""
        return self._position(checkpoint) is not None

    @property
    def unconsumed(self) -> bool:
        """True if rows are queued here, or were sent and their credit has not come back."""
        return self.queued_bytes > 0 or not self.credit.is_whole

    @property
    def has_pending(self) -> bool:
        """True if anything is queued: rows, watermarks, barriers or the end."""
        return bool(self._queue or self._tail)

    def grant(self, credit: int) -> None:
        """Add ``credit`` bytes granted by the consumer."""
        if credit <= 0:
            state = f"credit {self.credit.available}"
            raise ProtocolViolation(f"output {self.channel}", state, f"grant of {credit}")
        self.credit.grant(credit)

    def pump(self, now_ms: float) -> list[Element]:
        """Remove and return the elements that may leave now, in order."""
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
        """Return the time at which a small tail must be sent. Return None without a tail or without credit for it."""
        if self._queue or not self._tail or not self.credit.covers(self._tail_cost):
            return None
        latest_ms = self._tail_since_ms + self._flush_ms
        if not self.credit.is_whole:  # the consumer has not taken everything yet
            return latest_ms
        return min(latest_ms, max(self._tail_since_ms, self._left_ms + self._flush_ms / EAGER_SHARE))

    def check_invariants(self) -> None:
        """Raise AssertionError if the ledger or the order of elements is inconsistent."""
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
        """Yield pieces with their costs and the size to which each was cut."""
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
        """Return the cost of the next buffer after the head. Return 0 if there is none; the tail does not count."""
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
    """All output channels of one subtask (its ResultPartitions), by ChannelId. Empty for a sink.

    Args:
        channels: in the order in which they are pumped.
        limit_bytes: with this many queued bytes or more there is no room for more input.
        target_ms: maximum time that a consumer's input may take. If it is set, the limit is the number of bytes that
            the consumers take in a part of this time, and buffers are cut accordingly. Speed is measured by returned
            credit. None: the limit is fixed.

    Attributes:
        limit_bytes: the current limit.
        queued_bytes: bytes queued in all channels.
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
            # The speed is not yet known, and the windows may be sent at once. At first, credit comes back before rows
            # are consumed. This must not be taken for high speed.
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
        """Maximum number of bytes that one slice should add."""
        return max(1, self.limit_bytes // STEPS)

    def add(self, channel: ChannelId, payload: Payload, now_ms: float) -> None:
        """Queue rows on one channel."""
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
        """Insert a barrier at the head of every channel.

        Return the rows that it overtakes, channel by channel in order.
        """
        return [captured for channel in self._channels.values() for captured in channel.overtake(barrier)]

    def overtake_waiting(self, barrier: Barrier) -> list[Captured]:
        """Overtake only on the channels where the barrier of this checkpoint is still queued."""
        waiting = [c for c in self._channels.values() if c.holds_barrier(barrier.checkpoint)]
        return [captured for channel in waiting for captured in channel.overtake(barrier)]

    def bytes_ahead(self, checkpoint: CheckpointId) -> int:
        """Return the cost of the rows that ``overtake`` would capture."""
        return sum(channel.bytes_ahead(checkpoint) for channel in self._channels.values())

    def bytes_ahead_of_waiting(self, checkpoint: CheckpointId) -> int:
        """Return the cost of the rows that ``overtake_waiting`` would capture."""
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
        """Remove and return the elements that may leave now."""
        if self._target_ms is not None:
            self._measure(self._target_ms, now_ms)
        leaving = [(c.channel, element) for c in self._channels.values() if c.has_pending for element in c.pump(now_ms)]
        self.queued_bytes -= sum(element.cost for _, element in leaving if isinstance(element, Buffer))
        return leaving

    def flush_at_ms(self) -> float | None:
        """Return the earliest time at which ``pump`` would send a small tail, or None."""
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
