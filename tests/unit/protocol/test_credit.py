"""Property: credit is neither lost nor made, nobody waits for ever, and memory stays within what was declared."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.model.elements import Alignment
from tests.support.effort import some
from tests.support.protocol.channel_world import World

CHANNEL = st.integers(0, 3)
NODE = st.integers(0, 1)
TIMES = st.integers(1, 4)
SIZES = st.lists(st.sampled_from([1, 2, 4, 9, 39, 41, 130]), min_size=1, max_size=10)


class Credit(RuleBasedStateMachine):
    """Every element, grant and recovered entry is delivered by a rule of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.alignments: list[Alignment] = []
        self.triggered = [0, 0]

    @initialize(
        window=st.sampled_from([1, 4, 7, 40]),
        windows=st.sampled_from([1, 2, 3, 5, 20]),
        more=st.integers(0, 7),
        target_ms=st.sampled_from([None, None, 3, 50]),
        recovered=st.lists(st.tuples(CHANNEL, SIZES), max_size=6),
    )
    def begin(
        self, window: int, windows: int, more: int, target_ms: int | None, recovered: list[tuple[int, list[int]]]
    ) -> None:
        self.world = World(window, window * windows + more, target_ms, recovered)

    @rule(channel=CHANNEL, sizes=SIZES)
    def produce(self, channel: int, sizes: list[int]) -> None:
        self.world.produce(self.world.channels[channel], sizes)

    @rule(producer=NODE, sizes=SIZES)
    def produce_much(self, producer: int, sizes: list[int]) -> None:
        for channel in self.world.channels[producer * 2 :][:2]:
            self.world.produce(channel, sizes * 4)
        self.pump(producer, 6.0)

    @rule(producer=NODE, ms=st.sampled_from([0.0, 6.0]))
    def pump(self, producer: int, ms: float) -> None:
        self.world.pass_time(ms)
        self.world.pump(producer)

    @rule(channel=CHANNEL, times=TIMES)
    def deliver(self, channel: int, times: int) -> None:
        for _ in range(times):
            self.world.deliver_element(self.world.channels[channel])

    @rule(channel=CHANNEL, times=TIMES)
    def give_back(self, channel: int, times: int) -> None:
        for _ in range(times):
            self.world.give_back(self.world.channels[channel])

    @rule(consumer=NODE, max_rows=st.integers(1, 20), times=TIMES)
    def consume(self, consumer: int, max_rows: int, times: int) -> None:
        for _ in range(times):
            self.world.consume(consumer, max_rows)

    @rule(consumer=NODE)
    def load(self, consumer: int) -> None:
        self.world.load(consumer)

    @precondition(lambda self: len(self.alignments) - min(self.triggered) < 4)
    @rule(alignment=st.sampled_from(Alignment), producer=NODE)
    def checkpoint(self, alignment: Alignment, producer: int) -> None:
        self.alignments.append(alignment)
        self.trigger(producer)

    @rule(producer=NODE)
    def trigger(self, producer: int) -> None:
        done = self.triggered[producer]
        if done < len(self.alignments):
            self.triggered[producer] += 1
            self.world.trigger(producer, done + 1, self.alignments[done])

    @rule(ms=st.sampled_from([1.0, 30.0]))
    def time_passes(self, ms: float) -> None:
        self.world.pass_time(ms)

    @invariant()
    def machines_are_consistent(self) -> None:
        self.world.check_invariants()

    def teardown(self) -> None:
        for producer in range(2):
            while self.triggered[producer] < len(self.alignments):
                self.trigger(producer)
        self.world.settle()
        self.world.check_invariants()
        self.world.check_at_rest()


TestCredit = Credit.TestCase
TestCredit.settings = settings(max_examples=some(100), stateful_step_count=60, deadline=None)
