"""In-flight target: the queue of a consumer is what it processes in that time, at any speed. Virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from penstock.model.elements import Element
from penstock.model.ids import ChannelId
from penstock.protocol.gate import InputGate
from penstock.protocol.input import InputChannel, RowRange
from penstock.protocol.output import OutputChannel, Outputs, Payloads
from penstock.protocol.recovered import RecoveredRows
from penstock.worker.wiring import TARGET_WINDOW

ROW_BYTES = 100
BUDGET = 4 << 20
WINDOW = 4 << 10
OUTPUT_LIMIT = 1 << 20
TARGET_MS = 100
SLICE_MS = 20.0
SLICES = 20
"""The most that a producer makes in one tick."""


@dataclass(frozen=True)
class Block:
    """Rows of which only the number matters."""

    num_rows: int

    def slice(self, offset: int = 0, length: int | None = None) -> Block:
        return Block(self.num_rows - offset if length is None else min(length, self.num_rows - offset))


def block_bytes(block: Block) -> int:
    return max(1, block.num_rows * ROW_BYTES)


def join(blocks: Sequence[Block]) -> Block:
    return Block(sum(block.num_rows for block in blocks))


BLOCKS = Payloads(block_bytes, join)  # type: ignore[arg-type]


class Flow:
    """Producers that always have more, as their outputs have room, and one consumer with a cost per row; an element or
    a grant travels for one tick of ``tick_ms``."""

    def __init__(self, target_ms: int | None, producers: int = 2, window: int = WINDOW, tick_ms: float = 1.0) -> None:
        channels = [ChannelId(0, p, 0) for p in range(producers)]
        self.outputs = [Outputs([OutputChannel(c, 1, window, 5.0, BLOCKS)], OUTPUT_LIMIT, target_ms) for c in channels]
        inputs = [InputChannel(c, 1, window) for c in channels]
        recovered = RecoveredRows((), block_bytes)  # type: ignore[arg-type]
        self.gate = InputGate("gate", inputs, BUDGET, window, recovered, target_ms)
        self.producing = [True] * producers
        self.tick_ms = tick_ms
        self.now_ms = 0.0
        self.row_ms = 0.01
        self.rows = 0
        self._free_at_ms = 0.0
        self._wire: list[tuple[ChannelId, Element]] = []

    @property
    def inflight_bytes(self) -> int:
        return sum(o.queued_bytes for o in self.outputs) + self.gate.queued_bytes

    def run(self, ms: float) -> float:
        """Go on for so long; rows per millisecond."""
        before, end = self.rows, self.now_ms + ms
        while self.now_ms < end:
            self._tick()
        return (self.rows - before) / ms

    def _tick(self) -> None:
        self.now_ms += self.tick_ms
        for channel, element in self._wire:
            self.gate.arrive(channel, element)
        self._wire = []
        for producing, outputs in zip(self.producing, self.outputs, strict=True):
            (channel,) = outputs.channels
            for _ in range(SLICES if producing else 0):
                if outputs.has_room:
                    rows = Block(max(1, outputs.step_bytes // ROW_BYTES))
                    outputs.add(channel, rows, self.now_ms)  # type: ignore[arg-type]
                    self._wire += outputs.pump(self.now_ms)
            self._wire += outputs.pump(self.now_ms)
        self._free_at_ms = max(self._free_at_ms, self.now_ms)
        while self._free_at_ms < self.now_ms + self.tick_ms and self._consume():
            pass
        for channel, credit in self.gate.take_grants():
            self.outputs[channel.producer].grant(channel, credit)
        self.gate.check_invariants()

    def _consume(self) -> bool:
        left = slice_rows = max(1, int(SLICE_MS / self.row_ms))
        while left and isinstance(taken := self.gate.poll(left, self._free_at_ms), RowRange):
            left -= taken.rows
        self.rows += slice_rows - left
        self._free_at_ms += (slice_rows - left) * self.row_ms
        return left < slice_rows


def target_bytes(flow: Flow) -> float:
    return TARGET_MS / flow.row_ms * ROW_BYTES


def test_what_is_in_flight_follows_a_consumer_that_becomes_slow_and_fast_again() -> None:
    flow = Flow(TARGET_MS)
    assert flow.run(2_000) > 0.9 / flow.row_ms
    fast = flow.inflight_bytes
    assert 0.5 * target_bytes(flow) < fast <= 2 * target_bytes(flow)
    flow.row_ms *= 100
    flow.run(1.5 * fast / ROW_BYTES * flow.row_ms)  # what was let in at the old speed has to be worked off
    for _ in range(20):
        assert flow.run(100) > 0.9 / flow.row_ms, "it always has something to do"
        assert flow.inflight_bytes <= 2 * target_bytes(flow)
    flow.row_ms /= 100
    flow.run(500)
    assert flow.run(500) > 0.9 / flow.row_ms
    assert flow.inflight_bytes > 0.5 * fast


def test_a_millisecond_a_row_with_the_windows_and_the_target_of_a_real_query() -> None:
    flow = Flow(1_000, window=TARGET_WINDOW, tick_ms=5.0)
    flow.row_ms = 1.0
    flow.run(5_000)
    for _ in range(50):
        assert flow.run(200) >= 0.9 / flow.row_ms
        assert 50_000 < flow.inflight_bytes <= 200_000, "a second's worth is 100,000 bytes"


def test_without_a_target_the_budget_is_filled() -> None:
    flow = Flow(None)
    flow.row_ms = 1.0
    flow.run(1_000)
    assert flow.inflight_bytes > BUDGET


@pytest.mark.parametrize("row_ms", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("producers", [1, 4])
def test_from_the_start_little_more_than_windows_and_target_is_in_flight(row_ms: float, producers: int) -> None:
    flow = Flow(TARGET_MS, producers)
    flow.row_ms = row_ms
    windows = producers * WINDOW
    for _ in range(200):
        flow.run(10)
        assert flow.inflight_bytes <= 2 * target_bytes(flow) + 4 * windows
    assert flow.run(1_000) > 0.9 / row_ms


def test_a_consumer_that_nobody_keeps_busy_is_not_taken_for_a_slow_one() -> None:
    flow = Flow(TARGET_MS)
    flow.run(500)
    for _ in range(20):
        flow.producing = [False, False]
        flow.run(200)
        assert flow.inflight_bytes == 0
        flow.producing = [True, True]
        flow.run(20)
    assert flow.run(200) > 0.9 / flow.row_ms


def test_a_quiet_channel_does_not_keep_the_others_from_the_target() -> None:
    flow = Flow(TARGET_MS, producers=8, window=32 << 10)
    flow.row_ms = 0.1
    flow.run(500)
    flow.producing = [True] + [False] * 7
    flow.run(3_000)
    assert flow.run(1_000) > 0.9 / flow.row_ms
    assert 0.5 * target_bytes(flow) < flow.inflight_bytes <= 2 * target_bytes(flow)


def test_a_round_trip_of_a_tenth_of_the_target_costs_no_speed() -> None:
    flow = Flow(TARGET_MS, tick_ms=5.0)
    flow.run(2_000)
    assert flow.run(1_000) > 0.9 / flow.row_ms
