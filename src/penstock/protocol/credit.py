"""Credit: how many bytes a consumer allows each of its channels to send.

Both ends of a channel compute the same exclusive window from the graph and the options, so nothing is granted at the
start. Everything beyond it is granted explicitly. A buffer's cost is fixed by its producer and travels with it.

``SendCredit`` and ``ReceiveCredit`` are the ledgers of the two ends. ``GateCredit`` decides what the channels of a gate
are given: each its window, and floating credit by announced backlog out of what remains of the gate's budget. Floating
credit is never taken back: a channel is not given more than its window or what it announced, and what it announced it
will send.

With a target, the gate measures the speed of its subtask and gives only what will be consumed within that time, windows
included. Whatever the speed, a channel with nothing queued has credit for its producer's next buffer, and its whole
window if that buffer is not announced: no later event would give it credit.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.ids import ChannelId
from penstock.protocol.pace import Pace

UNLIMITED = 1 << 62
"""Bytes that may be on their way without a target: the budget alone decides."""

SMOOTHED_MS = 200
"""The least time over which speed is averaged: several slices, so that one pause of the process counts for little."""


def channel_window(exclusive_window: int, memory_per_gate: int, channels: int) -> int:
    """Return the exclusive window of each channel of a gate: at most half of the gate's budget goes into windows.

    The other half is the floating pool and, during recovery, the loader's.
    """
    return max(1, min(exclusive_window, memory_per_gate // (2 * max(1, channels))))


class SendCredit:
    """Ledger of one channel at its producer.

    Attributes:
        window: the exclusive window in bytes.
        available: bytes that may be sent. Below zero after a row larger than the window, until that row is consumed.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.available = window

    @property
    def is_whole(self) -> bool:
        """True if the consumer has taken everything that was sent."""
        return self.available >= self.window

    def covers(self, cost: int) -> bool:
        """Return True if a buffer may be sent. A row larger than the window needs the whole window, and goes alone."""
        return cost <= self.available or (cost > self.window and self.is_whole)

    def spend(self, cost: int) -> None:
        """Account for a buffer that is sent."""
        self.available -= cost

    def grant(self, credit: int) -> None:
        """Account for ``credit`` more bytes from the consumer."""
        self.available += credit


class ReceiveCredit:
    """Ledger of one channel at its consumer.

    Arrival moves bytes from ``granted`` to ``queued_bytes``. So their sum changes only by grants and by consumption.

    Attributes:
        window: the exclusive window in bytes.
        granted: what the producer may still send. A row larger than the window puts it into debt until it is consumed.
        queued_bytes: what lies here.
        backlog: what waits at the producer, as its last buffer announced it.
        following: the cost of the producer's next buffer, as announced; 0 if it was not.
        is_blocked: an aligned barrier blocks the channel: what arrives is not consumed.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.granted = window
        self.queued_bytes = 0
        self.backlog = 0
        self.following = 0
        self.is_blocked = False

    @property
    def held(self) -> int:
        """Bytes of the gate's budget that this channel takes."""
        return max(self.window, self.granted + self.queued_bytes)

    @property
    def deficit(self) -> int:
        """Bytes that are missing to the exclusive window."""
        return max(0, self.window - self.granted - self.queued_bytes)

    @property
    def expected(self) -> int:
        """Bytes that are here or may come. A quiet channel is not expected to use its window."""
        return self.queued_bytes + max(0, self.granted) if self.queued_bytes or self.backlog else 0

    @property
    def least(self) -> int:
        """The credit that a producer must have once nothing is queued here: with less, it might wait for ever."""
        return min(self.window, self.following or self.window)

    def covers(self, cost: int) -> bool:
        """Return True if the producer was allowed to send a buffer of this cost."""
        return cost <= self.granted or (cost > self.window and self.granted >= self.window)

    def arrive(self, cost: int, backlog: int, following: int) -> None:
        """Account for a buffer that arrived, with what it announces."""
        self.granted -= cost
        self.queued_bytes += cost
        self.backlog = backlog
        self.following = following

    def free(self, cost: int) -> None:
        """Account for a buffer that was consumed to its last row."""
        self.queued_bytes -= cost


class GateCredit:
    """Gives credit to the channels of one gate.

    Args:
        ledgers: of all channels, in their order.
        budget: bytes that may be queued and granted together; at least all windows.
        window: the exclusive window of each channel.
        target_ms: give no more credit than is consumed in this time; None: as much as the budget allows.

    Attributes:
        is_floating: floating credit is given. It is not during recovery, when recovered rows take that memory.
    """

    def __init__(
        self, ledgers: Mapping[ChannelId, ReceiveCredit], budget: int, window: int, target_ms: int | None
    ) -> None:
        self._ledgers = dict(ledgers)
        self._order = list(self._ledgers.items())
        self._budget = max(budget, window * len(self._ledgers))
        self._window = window
        self._target_ms = target_ms
        self._pace = Pace(max(target_ms or 0, SMOOTHED_MS), by_work=True)
        self._working_since_ms: float | None = None
        self._measured_bytes = 0.0
        self._turn = 0
        self._grants: dict[ChannelId, int] = {}
        self.is_floating = False

    @property
    def floating_bytes(self) -> int:
        """The part of the budget that is in no window."""
        return self._budget - self._window * len(self._order)

    @property
    def is_timed(self) -> bool:
        """True if speed is measured."""
        return self._target_ms is not None

    def begin_floating(self) -> None:
        """Give floating credit from now on."""
        self.is_floating = True
        self.give_floating()

    def take_grants(self) -> list[tuple[ChannelId, int]]:
        """Return the credit given since the last call, once; the caller carries it to the producers."""
        grants, self._grants = list(self._grants.items()), {}
        return grants

    def replenish(self, channel: ChannelId) -> None:
        """Give credit after a buffer of the channel was consumed.

        Half a window at a time, so that small buffers do not each cost a message. An empty queue gives all back, so
        that a producer whose next buffer needs the whole window is never left waiting.
        """
        ledger = self._ledgers[channel]
        credit = min(ledger.deficit, self._due())
        worth = min(self._window, self._target_bytes() // len(self._order)) // 2
        if ledger.queued_bytes == 0 or credit >= worth:
            self._give(channel, ledger, credit)
        self.give_floating()
        if ledger.queued_bytes == 0:
            self._give(channel, ledger, ledger.least - ledger.granted)

    def give_floating(self) -> None:
        """Share out what is free among the channels that announced more than they were granted."""
        if not self.is_floating:
            return
        # A channel that waits for a checkpoint reads nothing now: the others need the credit to get there.
        wanting = [
            (c, ledger) for c, ledger in self._order if ledger.backlog > ledger.granted and not ledger.is_blocked
        ]
        if not wanting:
            return
        free = self._budget - sum(ledger.held for _, ledger in self._order)
        due = self._due()
        self._turn += 1
        for turn in range(len(wanting)):
            channel, ledger = wanting[(turn + self._turn) % len(wanting)]
            sharers = len(wanting) - turn
            below_window = ledger.deficit
            credit = min(below_window + free // sharers, ledger.backlog - ledger.granted, due // sharers)
            if credit > (below_window if self._target_ms is None else 0):
                self._give(channel, ledger, credit)
                free -= max(0, credit - below_window)
                due -= credit

    def measure(self, taken_bytes: float, now_ms: float) -> None:
        """Measure speed before the next rows are taken: what was taken was worked on until now, if now is later.

        Time without room in the outputs counts too: what lies in front of a subtask waits for those behind it just as
        well.
        """
        since = self._working_since_ms
        if since is not None and now_ms <= since:
            return
        if since is not None:
            self._pace.observe(taken_bytes - self._measured_bytes, now_ms - since)
        self._measured_bytes = taken_bytes

    def measured(self, has_consumed: bool, now_ms: float) -> None:
        """Note whether anything was taken after ``measure``."""
        if has_consumed:
            self._working_since_ms = now_ms
        elif self._working_since_ms != now_ms:
            self._working_since_ms = None  # nothing to consume, and nothing in the subtask's hands either

    def check_invariants(self) -> None:
        """Raise AssertionError if the budget or a ledger is broken."""
        for channel, ledger in self._order:
            assert ledger.queued_bytes or ledger.granted >= ledger.least, f"{channel} may wait for ever"
            assert ledger.granted <= max(self._window, ledger.backlog), f"{channel} sits on credit"
        held = sum(ledger.held for _, ledger in self._order)
        assert held <= self._budget, f"{held} of {self._budget} bytes"
        floating = held - self._window * len(self._order)
        assert not floating or self.is_floating, f"{floating} floating bytes during recovery"

    def _due(self) -> int:
        """Return how many more bytes may be on their way here, by the target."""
        if self._target_ms is None:
            return UNLIMITED
        return max(0, self._target_bytes() - sum(ledger.expected for _, ledger in self._order if not ledger.is_blocked))

    def _target_bytes(self) -> int:
        if self._target_ms is None:
            return UNLIMITED
        return self._pace.within(self._target_ms, self._budget) or 0

    def _give(self, channel: ChannelId, ledger: ReceiveCredit, credit: int) -> None:
        if credit <= 0:
            return
        ledger.granted += credit
        self._grants[channel] = self._grants.get(channel, 0) + credit
