"""Two producers and two consumers with real channel and checkpoint machines, wires driven by hand, and a model.

The model knows what every producer put on every channel before each of its barriers, and what every consumer had
consumed when its epoch ended. Rows are numbered per channel; recovered ones come first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.model.elements import Alignment, Barrier, Buffer, Captured, Element, Side
from penstock.model.ids import BufferId, ChannelId, CheckpointId
from penstock.model.manifest import InflightEntry, SectionRef
from penstock.protocol.alignment import CaptureReady, Command, Declined, EndEpoch, Record, SubtaskCheckpoints
from penstock.protocol.gate import BarrierReached, InputGate
from penstock.protocol.input import InputChannel, RowRange
from penstock.protocol.output import OutputChannel, Outputs, Payloads
from penstock.protocol.recovered import RecoveredRows

WINDOW = 40
BUDGET = 200
BUDGET_MS = 3
"""How long the AUTO checkpoints of these tests may stay aligned."""
FLUSH_MS = 5.0
GENERATION = 3


@dataclass(frozen=True)
class Rows:
    """A payload: each row is (number, bytes)."""

    rows: tuple[tuple[int, int], ...]

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    def slice(self, offset: int = 0, length: int | None = None) -> Rows:
        return Rows(self.rows[offset : None if length is None else offset + length])

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.rows]


def row_bytes(payload: Rows) -> int:
    return max(1, sum(size for _, size in payload.rows))


def join(payloads: Sequence[Rows]) -> Rows:
    return Rows(tuple(row for payload in payloads for row in payload.rows))


PAYLOADS = Payloads(measure=row_bytes, concat=join)  # type: ignore[arg-type]


def rows_of(count: int, size: int = 4, start: int = 0) -> Rows:
    return Rows(tuple((start + i, size) for i in range(count)))


def output_channel(channel: ChannelId, window: int = WINDOW) -> OutputChannel:
    return OutputChannel(channel, GENERATION, window, FLUSH_MS, PAYLOADS)


def nothing_recovered() -> RecoveredRows:
    return RecoveredRows((), row_bytes)  # type: ignore[arg-type]


def gate_of(
    channels: Sequence[ChannelId],
    budget: int = BUDGET,
    recovered: RecoveredRows | None = None,
    window: int = WINDOW,
    target_ms: int | None = None,
) -> InputGate:
    inputs = [InputChannel(c, GENERATION, window) for c in channels]
    return InputGate("gate", inputs, budget, window, recovered or nothing_recovered(), target_ms)


def numbers_of(captured: Sequence[Captured]) -> list[int]:
    return [n for c in captured for n in c.buffer.payload.slice(c.offset, c.rows).numbers]  # type: ignore[attr-defined]


@dataclass
class Stored:
    """Stored in-flight entries, by the identity of their sections."""

    sections: dict[str, Rows] = field(default_factory=dict)

    def entry(self, channel: ChannelId, rows: Rows, layer: int = 1) -> InflightEntry:
        section = SectionRef("data", 0, row_bytes(rows), f"section {len(self.sections)}", "")
        self.sections[section.identity] = rows
        edge, producer, consumer = channel
        return InflightEntry(layer, edge, producer, consumer, "consumer", 0, rows.num_rows, 0, 7, section)

    def load(self, entry: InflightEntry) -> list[Rows]:
        """Yield the rows of an entry in batches of at most two rows."""
        rows = self.sections[entry.section.identity].slice(entry.row_start, entry.rows)
        return [rows.slice(start, 2) for start in range(0, rows.num_rows, 2)]


@dataclass
class Node:
    """One subtask: machines and what the model knows of it."""

    gate: InputGate
    outputs: Outputs
    checkpoints: SubtaskCheckpoints
    consumed: dict[ChannelId, list[int]] = field(default_factory=dict)
    consumed_at: dict[CheckpointId, dict[ChannelId, int]] = field(default_factory=dict)
    carried_at: dict[CheckpointId, list[InflightEntry]] = field(default_factory=dict)
    loading: deque[InflightEntry] = field(default_factory=deque)
    captures: dict[CheckpointId, CaptureReady] = field(default_factory=dict)
    recorded: dict[CheckpointId, list[Captured]] = field(default_factory=dict)
    declined: list[CheckpointId] = field(default_factory=list)
    last_ended: CheckpointId = 0
    barriers_seen: dict[ChannelId, list[CheckpointId]] = field(default_factory=dict)


class World:
    """``recovered``: the channel's number and the bytes of each row, per entry, in restore order."""

    def __init__(
        self,
        window: int = WINDOW,
        budget: int = BUDGET,
        target_ms: int | None = None,
        recovered: Sequence[tuple[int, Sequence[int]]] = (),
    ) -> None:
        self.window, self.budget, self.target_ms = window, budget, target_ms
        self.channels = [ChannelId(0, p, c) for p in range(2) for c in range(2)]
        self.now_ms = 0.0
        self.stored = Stored()
        self.produced: dict[ChannelId, list[int]] = {c: [] for c in self.channels}
        self.restored = [self._store(self.channels[number], sizes) for number, sizes in recovered]
        self.producers = [self._producer(p) for p in range(2)]
        self.consumers = [self._consumer(c) for c in range(2)]
        self.wires: dict[ChannelId, deque[Element]] = {c: deque() for c in self.channels}
        self.grants: dict[ChannelId, deque[int]] = {c: deque() for c in self.channels}
        self.cuts: dict[tuple[ChannelId, CheckpointId], int] = {}
        self.aborted: set[CheckpointId] = set()

    @staticmethod
    def _node(gate: InputGate, outputs: Outputs) -> Node:
        return Node(gate, outputs, SubtaskCheckpoints("checkpoints", gate, outputs))

    def _producer(self, index: int) -> Node:
        channels = [output_channel(c, self.window) for c in self.channels if c.producer == index]
        return self._node(gate_of([]), Outputs(channels, 10_000, self.target_ms))

    def _consumer(self, index: int) -> Node:
        channels = [c for c in self.channels if c.consumer == index]
        recovered = RecoveredRows([e for e in self.restored if e.consumer == index], row_bytes)  # type: ignore[arg-type]
        return self._node(gate_of(channels, self.budget, recovered, self.window, self.target_ms), Outputs([], 1))

    def _store(self, channel: ChannelId, sizes: Sequence[int]) -> InflightEntry:
        return self.stored.entry(channel, self._numbered(channel, sizes))

    def _numbered(self, channel: ChannelId, sizes: Sequence[int]) -> Rows:
        start = len(self.produced[channel])
        self.produced[channel] += range(start, start + len(sizes))
        return Rows(tuple((start + i, size) for i, size in enumerate(sizes)))

    # -- what happens ---------------------------------------------------------------------------------------------

    def produce(self, channel: ChannelId, sizes: Sequence[int]) -> None:
        self.producers[channel.producer].outputs.add(channel, self._numbered(channel, sizes), self.now_ms)

    def trigger(self, producer: int, checkpoint: CheckpointId, alignment: Alignment) -> None:
        node = self.producers[producer]
        barrier = Barrier(checkpoint, alignment)
        if alignment is Alignment.AUTO:
            barrier = Barrier(checkpoint, Alignment.ALIGNED, BUDGET_MS)
        self.run(node, node.checkpoints.triggered(barrier, self.now_ms))

    def pass_time(self, ms: float) -> None:
        self.now_ms += ms
        for node in [*self.producers, *self.consumers]:
            self.run(node, node.checkpoints.turn_timed_out(self.now_ms))

    def pump(self, producer: int) -> None:
        node = self.producers[producer]
        for channel, element in node.outputs.pump(self.now_ms):
            if isinstance(element, Barrier):
                element = node.checkpoints.leaving(element, self.now_ms)
            self.wires[channel].append(element)
        self.run(node, node.checkpoints.ready())

    def deliver(self, channel: ChannelId) -> None:
        """One element and one grant, if there are any."""
        self.deliver_element(channel)
        self.give_back(channel)

    def deliver_element(self, channel: ChannelId) -> None:
        if self.wires[channel]:
            element = self.wires[channel].popleft()
            node = self.consumers[channel.consumer]
            if isinstance(element, Barrier):
                node.barriers_seen.setdefault(channel, []).append(element.checkpoint)
            node.gate.arrive(channel, element)
            self.run(node, node.checkpoints.arrived(channel, element, self.now_ms))

    def give_back(self, channel: ChannelId) -> None:
        """One grant, if there is one on its way."""
        if self.grants[channel]:
            self.producers[channel.producer].outputs.grant(channel, self.grants[channel].popleft())

    def load(self, consumer: int) -> bool:
        """One recovered entry, if one was asked for."""
        node = self.consumers[consumer]
        node.loading += node.gate.recovered.to_load()
        if not node.loading:
            return False
        entry = node.loading.popleft()
        node.gate.loaded(entry, self.stored.load(entry))
        return True

    def consume(self, consumer: int, max_rows: int) -> bool:
        node = self.consumers[consumer]
        consumed = node.gate.poll(max_rows, self.now_ms)
        match consumed:
            case RowRange(channel, payload, rows, _):
                assert payload.num_rows == rows <= max_rows
                node.consumed.setdefault(channel, []).extend(payload.numbers)  # type: ignore[attr-defined]
            case BarrierReached(channel, barrier):
                self.run(node, node.checkpoints.reached(channel, barrier, self.now_ms))
        self.run(node, ())
        return consumed is not None

    def abort(self, checkpoint: CheckpointId, node: Node) -> None:
        self.aborted.add(checkpoint)
        node.checkpoints.abort(checkpoint)
        self.run(node, ())

    def run(self, node: Node, commands: Sequence[Command]) -> None:
        waiting = deque(commands)
        while waiting:
            match waiting.popleft():
                case EndEpoch(barrier):
                    assert barrier.checkpoint > node.last_ended, "epochs end in order"
                    node.last_ended = barrier.checkpoint
                    for channel in node.outputs.channels:
                        self.cuts[channel, barrier.checkpoint] = len(self.produced[channel])
                    node.consumed_at[barrier.checkpoint] = {c: len(rows) for c, rows in node.consumed.items()}
                    node.carried_at[barrier.checkpoint] = node.gate.recovered.carried()
                    waiting.extend(node.checkpoints.ended(barrier))
                case Record(checkpoint, inflight):
                    node.recorded.setdefault(checkpoint, []).extend(inflight)
                case CaptureReady() as ready:
                    assert ready.checkpoint not in node.captures
                    parts = [*node.recorded.pop(ready.checkpoint, []), *ready.inflight]
                    node.captures[ready.checkpoint] = replace(ready, inflight=parts)
                    self.check(ready.checkpoint)
                case Declined(checkpoint, _):
                    node.declined.append(checkpoint)
                    self.aborted.add(checkpoint)
        for channel, credit in node.gate.take_grants():
            self.grants[channel].append(credit)

    def settle(self) -> None:
        """Let everything flow until nothing moves."""
        self.now_ms += FLUSH_MS + 1
        for _ in range(5_000):
            before = self._movement()
            for producer in range(2):
                self.pump(producer)
            for channel in self.channels:
                self.deliver(channel)
            progressed = sum([*(self.load(c) for c in range(2)), *(self.consume(c, 1_000) for c in range(2))]) > 0
            if not progressed and before == self._movement() and not self._on_the_way():
                return
            self.now_ms += FLUSH_MS + 1
        raise AssertionError("the world does not come to rest")

    # -- what must hold -------------------------------------------------------------------------------------------

    def check(self, checkpoint: CheckpointId) -> None:
        """Consumed + captured is exactly what was produced before the barrier, on channels whose both ends are done."""
        for channel in self.channels:
            producer, consumer = self.producers[channel.producer], self.consumers[channel.consumer]
            if checkpoint in producer.captures and checkpoint in consumer.captures:
                count = consumer.consumed_at[checkpoint].get(channel, 0)
                total = consumer.consumed.get(channel, [])[:count]
                for entry in consumer.carried_at[checkpoint]:
                    if entry.producer == channel.producer:
                        total = total + [n for rows in self.stored.load(entry) for n in rows.numbers]
                for node, side in ((consumer, Side.CONSUMER), (producer, Side.PRODUCER)):
                    mine = [c for c in node.captures[checkpoint].inflight if c.channel == channel]
                    assert all(c.side is side for c in mine)
                    total = total + numbers_of(mine)
                assert total == self.produced[channel][: self.cuts[channel, checkpoint]], f"{channel} at {checkpoint}"

    def check_invariants(self) -> None:
        for node in [*self.producers, *self.consumers]:
            node.gate.check_invariants()
            node.outputs.check_invariants()
            node.checkpoints.check_invariants()
            for seen in node.barriers_seen.values():
                assert seen == sorted(set(seen))
        self.check_credit()

    def check_credit(self) -> None:
        """Check that a producer may send exactly what its consumer allowed, and nothing is queued beyond the declared
        rows."""
        for channel in self.channels:
            output = self.producers[channel.producer].outputs.channels[channel]
            sent = sum(e.cost for e in self.wires[channel] if isinstance(e, Buffer))
            allowed = output.credit.available + sent + sum(self.grants[channel])
            assert allowed == self.consumers[channel.consumer].gate.channels[channel].credit.granted, (
                f"credit of {channel}"
            )
        for node in self.consumers:
            inputs, recovered = list(node.gate.channels.values()), node.gate.recovered
            declared = max(self.budget, self.window * len(inputs))
            # A row that is larger than a window is paid back once it is read: until then credit is less than none.
            debts = sum(max(0, -c.credit.granted) for c in inputs)
            queued = sum(c.credit.queued_bytes + max(0, c.credit.granted) for c in inputs)
            alone = [entry.section.length for entry in self.restored if entry.consumer == inputs[0].channel.consumer]
            assert queued - debts <= declared
            if not recovered.drained:
                declared = max(declared, self.window * len(inputs) + max(alone))
            assert queued - debts + recovered.reserved_bytes <= declared, "peak bytes"

    def check_at_rest(self) -> None:
        """All rows consumed in order, every byte of credit accounted for, nothing blocked, no barrier left."""
        for channel in self.channels:
            producer, consumer = self.producers[channel.producer], self.consumers[channel.consumer]
            assert consumer.consumed.get(channel, []) == self.produced[channel]
            output, input_ = producer.outputs.channels[channel], consumer.gate.channels[channel]
            assert output.credit.available == input_.credit.granted == self.window
            assert output.queued_bytes == input_.credit.queued_bytes == 0
            assert input_.blocked_by is None
        assert all(node.gate.recovered.drained for node in self.consumers)

    def _movement(self) -> tuple[int, int]:
        return sum(len(r) for c in self.consumers for r in c.consumed.values()), sum(
            len(w) for w in self.wires.values()
        )

    def _on_the_way(self) -> bool:
        queued = any(n.outputs.queued_bytes for n in self.producers)
        return queued or any(self.wires.values()) or any(self.grants.values())


def buffer(channel: ChannelId, seq: int, rows: int = 2, size: int = 4, backlog: int = 0, following: int = 0) -> Buffer:
    payload = rows_of(rows, size, start=seq * 100)
    return Buffer(BufferId(GENERATION, channel, seq), payload, row_bytes(payload), backlog, following)


def taken(gate: InputGate, max_rows: int = 100) -> tuple[ChannelId, list[int]]:
    rows = gate.poll(max_rows)
    assert isinstance(rows, RowRange)
    return rows.channel, rows.payload.numbers  # type: ignore[attr-defined]
