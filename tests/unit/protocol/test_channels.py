"""Property: whatever the interleaving, channels lose nothing and checkpoints cut exactly at their barriers."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.model.elements import Alignment
from tests.support.effort import some
from tests.support.protocol.channel_world import World

CHANNEL = st.integers(0, 3)
SIZES = st.lists(st.sampled_from([1, 4, 9, 39, 41, 130]), min_size=1, max_size=12)


class Channels(RuleBasedStateMachine):
    """Triggers reach the producers one by one and in order, aborts reach each subtask on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.alignments: list[Alignment] = []
        self.triggered = [0, 0]
        self.abort_next: dict[int, list[int]] = {}

    @rule(channel=CHANNEL, sizes=SIZES)
    def produce(self, channel: int, sizes: list[int]) -> None:
        self.world.produce(self.world.channels[channel], sizes)

    @rule(channel=CHANNEL, timestamp=st.integers(0, 100))
    def watermark(self, channel: int, timestamp: int) -> None:
        self.world.producers[self.world.channels[channel].producer].outputs.watermark(timestamp)

    @rule(producer=st.integers(0, 1), ms=st.sampled_from([0.0, 6.0]))
    def pump(self, producer: int, ms: float) -> None:
        self.world.pass_time(ms)
        self.world.pump(producer)

    @rule(channel=CHANNEL, sizes=SIZES, max_rows=st.integers(1, 3))
    def traffic(self, channel: int, sizes: list[int], max_rows: int) -> None:
        """Rows on all channels, on their way, the first few consumed."""
        for turn in range(4):
            self.world.produce(self.world.channels[(channel + turn) % 4], sizes)
        for producer in range(2):
            self.pump(producer, 6.0)
        for turn in range(4):
            self.deliver(turn, 2)
        self.consume(channel % 2, max_rows)

    @rule(channel=CHANNEL, times=st.integers(1, 5))
    def deliver(self, channel: int, times: int) -> None:
        for _ in range(times):
            self.world.deliver(self.world.channels[channel])

    @rule(consumer=st.integers(0, 1), max_rows=st.integers(1, 7))
    def consume(self, consumer: int, max_rows: int) -> None:
        self.world.consume(consumer, max_rows)

    @precondition(lambda self: len(self.alignments) - min(self.triggered) < 6)
    @rule(alignment=st.sampled_from(Alignment), producer=st.integers(0, 1))
    def new_checkpoint(self, alignment: Alignment, producer: int) -> None:
        self.alignments.append(alignment)
        self.trigger(producer)

    @rule(producer=st.integers(0, 1))
    def trigger(self, producer: int) -> None:
        done = self.triggered[producer]
        if done < len(self.alignments):
            self.triggered[producer] += 1
            self.world.trigger(producer, done + 1, self.alignments[done])
            self.pump(producer, 0.0)

    @rule(ago=st.integers(0, 3))
    def abort(self, ago: int) -> None:
        checkpoint = len(self.alignments) - ago
        if checkpoint >= 1 and checkpoint not in self.abort_next:
            self.abort_next[checkpoint] = [0, 1, 2, 3]

    @rule(which=st.integers(0, 3))
    def abort_arrives(self, which: int) -> None:
        for checkpoint, missing in self.abort_next.items():
            if missing:
                self._abort_at(checkpoint, missing.pop(which % len(missing)))
                return

    def _abort_at(self, checkpoint: int, index: int) -> None:
        nodes = [*self.world.producers, *self.world.consumers]
        self.world.abort(checkpoint, nodes[index])

    @rule(ms=st.sampled_from([1.0, 6.0]))
    def time_passes(self, ms: float) -> None:
        self.world.now_ms += ms

    @invariant()
    def machines_are_consistent(self) -> None:
        self.world.check_invariants()

    def teardown(self) -> None:
        world = self.world
        for producer in range(2):
            while self.triggered[producer] < len(self.alignments):
                self.trigger(producer)
        for checkpoint, missing in self.abort_next.items():
            while missing:
                self._abort_at(checkpoint, missing.pop())
        world.settle()
        # What was declined by one subtask is aborted by the coordinator everywhere.
        for checkpoint in sorted(world.aborted - set(self.abort_next)):
            for node in [*world.producers, *world.consumers]:
                node.checkpoints.abort(checkpoint)
        world.settle()
        world.check_invariants()
        world.check_at_rest()
        for checkpoint in range(1, len(self.alignments) + 1):
            for node in [*world.producers, *world.consumers]:
                assert checkpoint in node.captures or checkpoint in world.aborted, f"{checkpoint} never completes"
                assert checkpoint not in node.checkpoints.active


TestChannels = Channels.TestCase
TestChannels.settings = settings(max_examples=some(120), stateful_step_count=80, deadline=None)
