"""Credit: the number of bytes that a consumer allows each of its channels to send.

Both ends of a channel compute the same exclusive window from the graph and the options, so no grant is needed at the
start. Everything beyond the window is granted explicitly. A producer fixes the cost of a buffer, and the cost travels
with it.

``SendCredit`` and ``ReceiveCredit`` are the ledgers of the two ends. ``GateCredit`` grants credit to the channels of a
gate: to each channel its window, and floating credit from the rest of the gate's budget, according to the announced
backlog. Floating credit is never taken back. This is safe because a channel is not granted more than its window or its
announced backlog, and the backlog will be sent.

With a target time, the gate measures the speed of its subtask and grants only the bytes that will be consumed within
that time, including windows. At any speed, a channel with an empty queue has credit for its producer's next buffer; if
that buffer is not announced, it has credit for its whole window. Otherwise the channel could wait forever, since no
later event would grant it credit.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.ids import ChannelId
from penstock.protocol.pace import Pace

UNLIMITED = 1 << 62
"""Limit of bytes in flight without a target: only the budget limits them."""

SMOOTHED_MS = 200
"""Minimum time in milliseconds over which speed is averaged.

It covers several slices, so that one pause of the process has little effect.
"""


def channel_window(exclusive_window: int, memory_per_gate: int, channels: int) -> int:
    """Return the exclusive window of each channel of a gate in bytes.

    At most half of the gate's budget is used for windows. The other half is the floating pool. During recovery it is
    the memory of the loader.
    """
    return max(1, min(exclusive_window, memory_per_gate // (2 * max(1, channels))))


class SendCredit:
    """Credit ledger of one channel at its producer.

    Attributes:
        window: the exclusive window in bytes.
        available: bytes that may be sent. Negative after a row larger than the window, until that row is consumed.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.available = window

    @property
    def is_whole(self) -> bool:
        """True if the consumer has taken everything that was sent."""
        return self.available >= self.window

    def covers(self, cost: int) -> bool:
        """Return True if a buffer may be sent.

        A row larger than the window needs the whole window and is sent alone.
        """
        return cost <= self.available or (cost > self.window and self.is_whole)

    def spend(self, cost: int) -> None:
        """Deduct the cost of a buffer that is sent."""
        self.available -= cost

    def grant(self, credit: int) -> None:
        """Add ``credit`` bytes granted by the consumer."""
        self.available += credit


class ReceiveCredit:
    """Credit ledger of one channel at its consumer.

    Arrival moves bytes from ``granted`` to ``queued_bytes``. So their sum changes only by grants and by consumption.

    Attributes:
        window: the exclusive window in bytes.
        granted: bytes that the producer may still send. Negative after a row larger than the window, until that row is
            consumed.
        queued_bytes: bytes in the queue.
        backlog: bytes queued at the producer, as announced by its last buffer.
        following: cost of the producer's next buffer, as announced; 0 if it was not announced.
        is_blocked: True while an aligned barrier blocks the channel, so that arriving data is not consumed.
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
        """Bytes of the gate's budget that this channel uses."""
        return max(self.window, self.granted + self.queued_bytes)

    @property
    def deficit(self) -> int:
        """Bytes missing to the full exclusive window."""
        return max(0, self.window - self.granted - self.queued_bytes)

    @property
    def expected(self) -> int:
        """Bytes that are queued or may arrive soon.

        A channel without queue and backlog is not expected to use its window.
        """
        return self.queued_bytes + max(0, self.granted) if self.queued_bytes or self.backlog else 0

    @property
    def least(self) -> int:
        """Credit that a producer must have once the queue is empty. With less, it might wait forever."""
        return min(self.window, self.following or self.window)

    def covers(self, cost: int) -> bool:
        """Return True if the producer was allowed to send a buffer of this cost."""
        return cost <= self.granted or (cost > self.window and self.granted >= self.window)

    def arrive(self, cost: int, backlog: int, following: int) -> None:
        """Account for a buffer that arrived, and for its announcements."""
        self.granted -= cost
        self.queued_bytes += cost
        self.backlog = backlog
        self.following = following

    def free(self, cost: int) -> None:
        """Account for a buffer whose last row was consumed."""
        self.queued_bytes -= cost


class GateCredit:
    """Grants credit to the channels of one gate.

    Args:
        ledgers: ledgers of all channels, in channel order.
        budget: bytes that may be queued and granted together; raised to the sum of all windows if it is smaller.
        window: the exclusive window of each channel in bytes.
        target_ms: grant at most the credit that is consumed in this time; None: as much as the budget allows.

    Attributes:
        is_floating: True if floating credit is granted. False during recovery, when recovered rows use that memory.
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
        """Start granting floating credit."""
        self.is_floating = True
        self.give_floating()

    def take_grants(self) -> list[tuple[ChannelId, int]]:
        """Return the credit granted since the last call. The caller must send it to the producers."""
        grants, self._grants = list(self._grants.items()), {}
        return grants

    def replenish(self, channel: ChannelId) -> None:
        """Grant credit after a buffer of the channel was consumed.

        Credit is granted in steps of half a window, so that not every small buffer costs a message. When the queue is
        empty, all missing credit is granted, because the producer's next buffer may need the whole window.
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
        """Distribute the free budget among the channels whose backlog exceeds their granted credit."""
        if not self.is_floating:
            return
        # A channel blocked by a checkpoint is not read now. The other channels need the credit to reach that
        # checkpoint.
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
        """Measure speed before the next rows are taken. Rows taken earlier count as processed up to now.

        Nothing is measured if the time has not advanced. Time without room in the outputs counts too, because it delays
        queued input just as much.
        """
        since = self._working_since_ms
        if since is not None and now_ms <= since:
            return
        if since is not None:
            self._pace.observe(taken_bytes - self._measured_bytes, now_ms - since)
        self._measured_bytes = taken_bytes

    def measured(self, has_consumed: bool, now_ms: float) -> None:
        """Record whether anything was taken after ``measure``."""
        if has_consumed:
            self._working_since_ms = now_ms
        elif self._working_since_ms != now_ms:
            self._working_since_ms = None  # nothing to consume, and the subtask is not processing anything either

    def check_invariants(self) -> None:
        """Raise AssertionError if the budget or a ledger is inconsistent."""
        for channel, ledger in self._order:
            assert ledger.queued_bytes or ledger.granted >= ledger.least, f"{channel} may wait for ever"
            assert ledger.granted <= max(self._window, ledger.backlog), f"{channel} sits on credit"
        held = sum(ledger.held for _, ledger in self._order)
        assert held <= self._budget, f"{held} of {self._budget} bytes"
        floating = held - self._window * len(self._order)
        assert not floating or self.is_floating, f"{floating} floating bytes during recovery"

    def _due(self) -> int:
        """Return how many more bytes may be in flight to this gate according to the target."""
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
