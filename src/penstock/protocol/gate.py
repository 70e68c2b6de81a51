"""Input gate of a subtask. Every element enters here, and the gate selects the next one to consume.

Recovered rows come strictly before live ones and are loaded lazily. Only recovered rows and aligned barriers ever hold
a live channel back.
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
from penstock.protocol.credit import GateCredit
from penstock.protocol.input import InputChannel, RowRange
from penstock.protocol.recovered import RecoveredRows


@dataclass(frozen=True, slots=True)
class WatermarkRose:
    """Reports the new minimum over all channels."""

    timestamp_us: int


@dataclass(frozen=True, slots=True)
class BarrierReached:
    """Reports that an aligned barrier was consumed in order. Its channel is now blocked."""

    channel: ChannelId
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """Reports that everything the producer will ever send was consumed."""

    channel: ChannelId


Consumed = RowRange | WatermarkRose | BarrierReached | ChannelEnded


class InputGate:
    """All inputs of one subtask.

    Args:
        subject: name of the gate in errors.
        channels: in the order in which they are polled.
        budget: bytes that may be queued and granted together.
        window: the exclusive window of each channel in bytes.
        recovered: in-flight rows to be processed first. Until they are read, they use the part of the budget that is in
            no window.
        target_ms: grant at most the credit that is consumed in this time; None: as much as the budget allows.
        untimed: edges without watermarks (``Edge.timed``).

    Attributes:
        recovered: see above.
        is_recovering: True while recovered rows are left.
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
        self._credit = GateCredit({c.channel: c.credit for c in self._order}, budget, window, target_ms)
        self.recovered = recovered
        recovered.budget = self._credit.floating_bytes
        self.is_recovering = not recovered.drained
        self._credit.is_floating = recovered.drained
        self._taken_bytes = 0.0
        self._recovered_bytes = 0
        self._turn = 0
        self._watermark_us = self._minimum()

    @property
    def channels(self) -> Mapping[ChannelId, InputChannel]:
        return self._channels

    @property
    def watermark_us(self) -> int | None:
        """Minimum watermark over all edges; None until each channel has one. It never falls.

        The watermark of an edge is the minimum over its channels that have not ended. When all have ended, it is their
        maximum, so the final event time does not depend on which channel ends first. An edge without watermarks counts
        only for the end of event time, because it may deliver rows until then.
        """
        return self._watermark_us

    @property
    def queued_bytes(self) -> int:
        return sum(c.credit.queued_bytes for c in self._order) + self.recovered.loaded_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes of all rows ever consumed here, including recovered ones.

        The difference between two values is the number of bytes consumed in between.
        """
        return round(self._taken_bytes) + (self.recovered.taken_bytes if self.is_recovering else self._recovered_bytes)

    @property
    def ended(self) -> bool:
        """True if every element that will ever come, except barriers, was consumed. Always False for a source."""
        return bool(self._order) and not self.is_recovering and all(c.ended for c in self._order)

    @property
    def readable(self) -> bool:
        """True if ``poll`` would return something."""
        if self.is_recovering:
            return self.recovered.readable
        return any(c.head is not None for c in self._order)

    def arrive(self, channel: ChannelId, element: Element) -> None:
        """Queue an element that came in on a channel. Every element from another subtask enters here."""
        self.channel(channel, type(element).__name__).arrive(element)
        if isinstance(element, Buffer):
            self._credit.give_floating()

    def loaded(self, entry: InflightEntry, batches: Sequence[Payload], reached: Sequence[Sequence[int]] = ()) -> None:
        """Accept recovered batches that were requested; see ``RecoveredRows.loaded``."""
        self.recovered.loaded(entry, batches, reached)
        self._leave_recovery()

    def poll(self, max_rows: int, now_ms: float | None = None, watermark_due: bool = False) -> Consumed | None:
        """Consume and return the next rows or element; channels take turns.

        Return None if there is nothing to consume now.

        Args:
            max_rows: maximum number of rows to return.
            now_ms: time on any monotonic clock. It must be the same for all calls whose results are processed together.
                With a target it is used to measure speed.
            watermark_due: True if an earlier rise of the watermark is not yet processed. Rows that follow that
                watermark may be consumed before it is processed. Barriers and ends may not: they stay queued.
        """
        if not self._credit.is_timed or now_ms is None:
            return self._poll(max_rows, watermark_due)
        self._credit.measure(self._taken_bytes, now_ms)
        consumed = self._poll(max_rows, watermark_due)
        self._credit.measured(consumed is not None, now_ms)
        return consumed

    def _poll(self, max_rows: int, watermark_due: bool) -> Consumed | None:
        if self.is_recovering:
            rows = self.recovered.take(max_rows)
            self._leave_recovery()
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
        """Unblock the channels that this checkpoint blocks."""
        for channel in self._order:
            if channel.blocked_by == checkpoint:
                channel.unblock()
        self._credit.give_floating()

    def drop(self, checkpoint: CheckpointId) -> None:
        """Remove all traces of an aborted checkpoint."""
        self.unblock(checkpoint)
        for channel in self._order:
            channel.drop(checkpoint)

    def capture(self, channel: ChannelId, before: CheckpointId | None) -> list[Captured]:
        return self._channels[channel].capture(before)

    def take_grants(self) -> list[tuple[ChannelId, int]]:
        """Return the credit granted since the last call. The caller must send it to the producers."""
        return self._credit.take_grants()

    def channel(self, channel: ChannelId, event: object) -> InputChannel:
        """Return the channel. ``event`` names the received element in the error if the channel does not exist."""
        found = self._channels.get(channel)
        if found is None:
            raise ProtocolViolation(self._subject, f"channels {list(self._channels)}", f"{event} on {channel}")
        return found

    def check_invariants(self) -> None:
        """Raise AssertionError if a ledger, the budget or the watermark is inconsistent."""
        for channel in self._order:
            channel.check_invariants()
        self._credit.check_invariants()
        self.recovered.check_invariants()
        assert self.is_recovering != self.recovered.drained
        assert self._watermark_us is None or self._watermark_us <= (self._minimum() or self._watermark_us)

    def _take_rows(self, channel: InputChannel, max_rows: int) -> RowRange:
        head = channel.head
        assert isinstance(head, Buffer)
        rows, freed = channel.take_rows(max_rows)
        self._taken_bytes += head.cost * rows.rows / head.rows
        if freed:
            self._credit.replenish(channel.channel)
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
        """Return the new minimum watermark if it rose since the last call. Call it also after the end of a channel."""
        minimum = self._minimum()
        if minimum is None or (self._watermark_us is not None and minimum <= self._watermark_us):
            return None
        self._watermark_us = minimum
        return WatermarkRose(minimum)

    def watermark_of(self, channel: InputChannel) -> int | None:
        """Return the watermark of a channel for a snapshot.

        It is at least the gate's watermark, so that a channel that has ended cannot hold a restored gate back.
        """
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

    def _leave_recovery(self) -> None:
        if self.is_recovering and self.recovered.drained:
            self.is_recovering = False
            self._recovered_bytes = self.recovered.taken_bytes
            self._credit.begin_floating()
