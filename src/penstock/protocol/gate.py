"""The input gate of a subtask: all its channels, their credit, and what is consumed next.

Recovered rows come strictly before live ones and are loaded lazily; only they and aligned barriers ever hold a live
channel back. Credit: each channel has its exclusive window; floating credit is given by announced backlog out of what
remains of the gate's budget, and is zero while recovered rows are left. It need not be taken back: a channel is never
given more than its window or what it announced, and what it announced it will send.

With a target, the gate measures its subtask's speed and gives only what will be consumed within that time, windows
included. Whatever the speed, a channel with nothing queued has credit for its producer's next buffer, and its whole
window if that is not announced: nothing would ever ask for more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import ProtocolViolation
from penstock.model.elements import (
    END_OF_TIME_US,
    Barrier,
    Buffer,
    Captured,
    Element,
    EndOfPartition,
    Payload,
    Watermark,
)
from penstock.model.ids import ChannelId, CheckpointId
from penstock.model.manifest import InflightEntry
from penstock.protocol.input import InputChannel, RowRange
from penstock.protocol.pace import Pace
from penstock.protocol.recovered import RecoveredRows


@dataclass(frozen=True, slots=True)
class WatermarkRose:
    """The minimum over all channels is now this."""

    timestamp_us: int


@dataclass(frozen=True, slots=True)
class BarrierReached:
    """An aligned barrier was consumed in order; its channel is blocked."""

    channel: ChannelId
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """Everything the producer will ever send was consumed."""

    channel: ChannelId


Consumed = RowRange | WatermarkRose | BarrierReached | ChannelEnded

UNLIMITED = 1 << 62
"""Bytes due without a target: the budget alone decides."""

SMOOTHED_MS = 200
"""The least time over which speed is averaged: several slices, so that one pause of the process counts for little."""


class InputGate:
    """All inputs of one subtask.

    Args:
        subject: names the gate in errors.
        channels: in a fixed order, which is also the order of turns.
        budget: bytes that may be queued and granted together.
        window: the exclusive window of each channel.
        recovered: in-flight rows to be processed first; what is not in windows of the budget is theirs until then.
        target_ms: give no more credit than is consumed in this time; None: as much as the budget allows.
        untimed: edges without watermarks (``Edge.timed``).
    """

    def __init__(
        self,
        subject: str,
        channels: Iterable[InputChannel],
        budget: int,
        window: int,
        recovered: RecoveredRows,
        target_ms: int | None = None,
        untimed: Collection[int] = (),
    ) -> None:
        self._subject = subject
        self._channels = {c.channel: c for c in channels}
        self._order = list(self._channels.values())
        self._by_edge: dict[int, list[InputChannel]] = {}
        for channel in self._order:
            self._by_edge.setdefault(channel.channel.edge, []).append(channel)
        self._untimed = frozenset(untimed)
        self._budget = max(budget, window * len(self._order))
        self._window = window
        self.recovered = recovered
        recovered.budget = self._budget - window * len(self._order)
        self._target_ms = target_ms
        self._pace = Pace(max(target_ms or 0, SMOOTHED_MS), by_work=True)
        self._working_since_ms: float | None = None
        self._taken_bytes = self._measured_bytes = 0.0
        self._turn = 0
        self._floating_turn = 0
        self._watermark_us = self._minimum()
        self._grants: dict[ChannelId, int] = {}

    @property
    def channels(self) -> Mapping[ChannelId, InputChannel]:
        return self._channels

    @property
    def watermark_us(self) -> int | None:
        """The least of all edges, None until each channel has one; it only rises. An edge stands at the minimum over
        its channels that have not ended, and for ever at the largest when all have: how far event time comes in the end
        does not depend on who ends first. An edge without watermarks counts for the end of event time only: rows may
        come by it until then."""
        return self._watermark_us

    @property
    def queued_bytes(self) -> int:
        return sum(c.queued_bytes for c in self._order) + self.recovered.loaded_bytes

    @property
    def taken_bytes(self) -> int:
        """Of all rows that were ever consumed here, recovered ones among them; the difference of two is what was
        consumed between."""
        return round(self._taken_bytes) + self.recovered.taken_bytes

    @property
    def ended(self) -> bool:
        """Whether everything that will ever come was consumed, barriers aside; never for a source."""
        return bool(self._order) and self.recovered.drained and all(c.ended for c in self._order)

    @property
    def readable(self) -> bool:
        """Whether ``poll`` would return something."""
        if not self.recovered.drained:
            return self.recovered.readable
        return any(c.head is not None for c in self._order)

    def arrive(self, channel: ChannelId, element: Element) -> None:
        """Queue an element that came in on a channel."""
        self.channel(channel, type(element).__name__).arrive(element)
        if isinstance(element, Buffer):
            self._give_floating()

    def loaded(self, entry: InflightEntry, batches: Sequence[Payload], reached: Sequence[Sequence[int]] = ()) -> None:
        """Recovered batches, as asked for; see ``RecoveredRows.loaded``."""
        self.recovered.loaded(entry, batches, reached)
        if self.recovered.drained:
            self._give_floating()

    def poll(self, max_rows: int, now_ms: float | None = None, watermark_due: bool = False) -> Consumed | None:
        """Consume the next thing; channels take turns. None: nothing to consume now.

        ``watermark_due``: one that rose has not been heeded yet. Rows behind it may be processed before it, barriers
        and ends may not: they stay where they are.
        ``now_ms``: on any clock that does not jump, the same for all calls of which the results are processed together;
        with a target, speed is measured by it.
        """
        if self._target_ms is None or now_ms is None:
            return self._poll(max_rows, watermark_due)
        self._measure(now_ms)
        consumed = self._poll(max_rows, watermark_due)
        if consumed is not None:
            self._working_since_ms = now_ms
        elif self._working_since_ms != now_ms:
            self._working_since_ms = None  # nothing to consume, and nothing in the subtask's hands either
        return consumed

    def _poll(self, max_rows: int, watermark_due: bool) -> Consumed | None:
        if not self.recovered.drained:
            rows = self.recovered.take(max_rows)
            if self.recovered.drained:
                self._give_floating()
            return rows
        for _ in range(len(self._order)):
            channel = self._order[self._turn]
            self._turn = (self._turn + 1) % len(self._order)
            while (head := channel.head) is not None:
                if isinstance(head, Buffer):
                    return self._take_rows(channel, max_rows)
                if watermark_due and not isinstance(head, Watermark):
                    break
                consumed = self._take_control(channel)
                if consumed is not None:
                    return consumed
        return None

    def unblock(self, checkpoint: CheckpointId) -> None:
        """Channels blocked by this checkpoint go on."""
        for channel in self._order:
            if channel.blocked_by == checkpoint:
                channel.blocked_by = None
        self._give_floating()

    def drop(self, checkpoint: CheckpointId) -> None:
        """Forget everything of a dead checkpoint."""
        self.unblock(checkpoint)
        for channel in self._order:
            channel.drop(checkpoint)

    def capture(self, channel: ChannelId, before: CheckpointId | None) -> list[Captured]:
        return self._channels[channel].capture(before)

    def take_grants(self) -> list[tuple[ChannelId, int]]:
        """The credit given since the last call, once; to be carried to the producers."""
        grants, self._grants = list(self._grants.items()), {}
        return grants

    def channel(self, channel: ChannelId, event: object) -> InputChannel:
        """The channel; ``event`` says in an error what came on it."""
        found = self._channels.get(channel)
        if found is None:
            raise ProtocolViolation(self._subject, f"channels {list(self._channels)}", f"{event} on {channel}")
        return found

    def check_invariants(self) -> None:
        """Raise AssertionError if a ledger, the budget or the watermark is broken."""
        for channel in self._order:
            channel.check_invariants()
            assert channel.queued_bytes or channel.granted >= channel.least, f"{channel.channel} may wait for ever"
            assert channel.granted <= max(self._window, channel.backlog), f"{channel.channel} sits on credit"
        self.recovered.check_invariants()
        held = sum(c.held for c in self._order)
        assert held <= self._budget, f"{self._subject}: {held} of {self._budget} bytes"
        floating = held - self._window * len(self._order)
        assert not floating or self.recovered.drained, f"{self._subject}: {floating} floating bytes during recovery"
        assert self._watermark_us is None or self._watermark_us <= (self._minimum() or self._watermark_us)

    def _take_rows(self, channel: InputChannel, max_rows: int) -> RowRange:
        head = channel.head
        assert isinstance(head, Buffer)
        rows, freed = channel.take_rows(max_rows)
        self._taken_bytes += head.cost * rows.rows / head.rows
        if freed:
            # Half a window at a time, so that small buffers do not each cost a message; an empty queue gives all
            # back, so that a producer whose next buffer needs the whole window is never left waiting.
            credit = min(channel.deficit, self._due())
            worth = min(self._window, self._target_bytes() // len(self._order)) // 2
            if channel.queued_bytes == 0 or credit >= worth:
                self._give(channel, credit)
            self._give_floating()
            if channel.queued_bytes == 0:
                self._give(channel, channel.least - channel.granted)
        return rows

    def _take_control(self, channel: InputChannel) -> Consumed | None:
        element = channel.take_control()
        match element:
            case Barrier():
                return BarrierReached(channel.channel, element)
            case EndOfPartition():
                return ChannelEnded(channel.channel)
            case Watermark():
                return self.risen()
            case Buffer():
                raise AssertionError("a buffer is taken by rows")

    def risen(self) -> WatermarkRose | None:
        """The new minimum, once, if it rose (asked for also after the end of a channel)."""
        minimum = self._minimum()
        if minimum is None or (self._watermark_us is not None and minimum <= self._watermark_us):
            return None
        self._watermark_us = minimum
        return WatermarkRose(minimum)

    def watermark_of(self, channel: InputChannel) -> int | None:
        """What a snapshot keeps for a channel: one that ended does not hold the gate back, after a restore neither."""
        known = [us for us in (channel.watermark_us, self._watermark_us) if us is not None]
        return max(known, default=None)

    def _minimum(self) -> int | None:
        timed = self._least(edge for edge in self._by_edge if edge not in self._untimed)
        if not self._untimed or (timed is not None and timed < END_OF_TIME_US):
            return timed
        return END_OF_TIME_US if self._least(self._by_edge) == END_OF_TIME_US else None

    def _least(self, edges: Iterable[int]) -> int | None:
        minimum: int | None = None
        for channels in (self._by_edge[edge] for edge in edges):
            alive = [c.watermark_us for c in channels if not c.ended]
            if None in alive:
                return None
            known = [c.watermark_us for c in channels if c.watermark_us is not None and (not alive or not c.ended)]
            if known:
                stands_at = min(known) if alive else max(known)
                minimum = stands_at if minimum is None else min(minimum, stands_at)
        return minimum

    def _measure(self, now_ms: float) -> None:
        """What was taken was worked on until now, if now is later. Time without room in the outputs counts too: what
        lies in front of a subtask waits for those behind it just as well."""
        since = self._working_since_ms
        if since is not None and now_ms <= since:
            return
        if since is not None:
            self._pace.observe(self._taken_bytes - self._measured_bytes, now_ms - since)
        self._measured_bytes = self._taken_bytes

    def _due(self) -> int:
        """How much more may be on its way here, by the target."""
        if self._target_ms is None:
            return UNLIMITED
        return max(0, self._target_bytes() - sum(c.expected for c in self._order if c.blocked_by is None))

    def _target_bytes(self) -> int:
        if self._target_ms is None:
            return UNLIMITED
        return self._pace.within(self._target_ms, self._budget) or 0

    def _give_floating(self) -> None:
        if not self.recovered.drained:
            return
        # A channel that waits for a checkpoint reads nothing now: the others need the credit to get there.
        wanting = [c for c in self._order if c.backlog > c.granted and c.blocked_by is None]
        if not wanting:
            return
        free = self._budget - sum(c.held for c in self._order)
        due = self._due()
        self._floating_turn += 1
        for turn in range(len(wanting)):
            channel = wanting[(turn + self._floating_turn) % len(wanting)]
            sharers = len(wanting) - turn
            below_window = channel.deficit
            credit = min(below_window + free // sharers, channel.backlog - channel.granted, due // sharers)
            if credit > (below_window if self._target_ms is None else 0):
                self._give(channel, credit)
                free -= max(0, credit - below_window)
                due -= credit

    def _give(self, channel: InputChannel, credit: int) -> None:
        if credit <= 0:
            return
        channel.granted += credit
        self._grants[channel.channel] = self._grants.get(channel.channel, 0) + credit
