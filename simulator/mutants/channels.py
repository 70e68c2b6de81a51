"""Broken channels: what leaves an output queue and in which order, and who may send how much."""

from __future__ import annotations

from typing import Any

from penstock.model.elements import Barrier, Captured, Watermark
from penstock.model.ids import ChannelId
from penstock.protocol.credit import GateCredit, SendCredit
from penstock.protocol.gate import InputGate
from penstock.protocol.output import OutputChannel
from simulator.mutants.mutation import mutant


def _no_output_capture(original: Any) -> Any:
    def overtake(self: OutputChannel, barrier: Barrier) -> list[Captured]:
        original(self, barrier)
        return []

    return overtake


def _tail_left_behind(original: Any) -> Any:
    """Put elements in front of the open tail of small slices instead of closing it."""

    def queue(self: OutputChannel, element: Any) -> Any:
        tail, cost = self._tail, self._tail_cost
        self._tail, self._tail_cost = [], 0
        result = original(self, element)
        self._tail, self._tail_cost = tail, cost
        return result

    return queue


def _tail_without_credit_left_behind(original: Any) -> Any:
    left_behind = _tail_left_behind(original)

    def queue(self: OutputChannel, watermark: Watermark) -> Any:
        return original(self, watermark) if self.credit.covers(self._tail_cost) else left_behind(self, watermark)

    return queue


def _barrier_before_its_watermark(original: Any) -> Any:
    def poll(self: InputGate, max_rows: int, now_ms: float | None = None, watermark_due: bool = False) -> Any:
        return original(self, max_rows, now_ms)

    return poll


def _to_the_very_head(original: Any) -> Any:
    def overtake(self: OutputChannel, barrier: Barrier) -> Any:
        captured = original(self, barrier)
        if barrier in self._queue:
            self._queue.remove(barrier)
            self._queue.appendleft(barrier)
        return captured

    return overtake


def _floating_twice(original: Any) -> Any:
    def give_floating(self: GateCredit) -> None:
        before = dict(self._grants)
        original(self)
        for channel, credit in self._grants.items():
            self._grants[channel] = credit + credit - before.get(channel, 0)

    return give_floating


def _not_to_blocked(original: Any) -> Any:
    def take_grants(self: InputGate) -> list[tuple[ChannelId, int]]:
        return [grant for grant in original(self) if self.channels[grant[0]].blocked_by is None]

    return take_grants


def _oversize_at_once(original: Any) -> Any:
    def covers(self: SendCredit, cost: int) -> bool:
        return cost > self.window or bool(original(self, cost))

    return covers


CHANNELS = {
    "output-queue-not-captured": mutant(
        "what an unaligned barrier overtakes in an output queue is not captured",
        (OutputChannel, "overtake", _no_output_capture),
    ),
    "capture-does-not-seal": mutant(
        "an unaligned barrier overtakes the small slices that still wait for more, uncaptured",
        (OutputChannel, "overtake", _tail_left_behind),
    ),
    "aligned-barrier-does-not-seal": mutant(
        "an aligned barrier overtakes the small slices that still wait for more",
        (OutputChannel, "append", _tail_left_behind),
    ),
    "watermark-before-the-tail": mutant(
        "a watermark overtakes the small slices that wait for credit",
        (OutputChannel, "watermark", _tail_without_credit_left_behind),
    ),
    "barrier-before-its-watermark": mutant(
        "what comes behind a watermark that is due is consumed, and forgotten",
        (InputGate, "poll", _barrier_before_its_watermark),
    ),
    "older-barrier-overtaken": mutant(
        "an unaligned barrier goes to the very head, before older barriers",
        (OutputChannel, "overtake", _to_the_very_head),
    ),
    "floating-credit-given-twice": mutant(
        "floating credit is granted twice and accounted for once",
        (GateCredit, "give_floating", _floating_twice),
    ),
    "grants-of-a-blocked-channel-lost": mutant(
        "credit for a channel that a barrier blocks is not sent, nor later",
        (InputGate, "take_grants", _not_to_blocked),
    ),
    "oversize-row-without-credit": mutant(
        "a row larger than the window is sent whatever credit there is",
        (SendCredit, "covers", _oversize_at_once),
    ),
}
