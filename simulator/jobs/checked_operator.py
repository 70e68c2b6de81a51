"""Base class of the simulated operators: it checks the input and stamps the output.

The rows of one channel come in the order in which they were emitted, each once, however often the job was restored:
their ``seq`` rises. The number of rows from each producer is part of the state, so that a snapshot can be audited: its
consumers have consumed, and it holds in flight, exactly what its producers had emitted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.model.ids import SubtaskId
from penstock.model.key_groups import owned_range
from penstock.model.plain import Plain
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.state.table import TableCapture
from penstock.testing.failure import SimulationFailure
from simulator.jobs.rows import KEY, batch_of, columns_of, emitter_of, group_of, name_of, vertex_of

RECEIVED = "received"
EMITTED = "emitted"
WATERMARK = "watermark_us"
CLOSED = "closed"
EDITED = "edited"


class Workload(Protocol):
    """Access of an operator to the simulation: virtual time and injected failures."""

    def spend_time(self, subtask: SubtaskId, rows: int) -> None:
        """Spend virtual time on rows. Raises FunctionError if user code must fail now."""

    @property
    def generation_number(self) -> int:
        """Number that no subtask of an earlier Generation has."""

    @property
    def edited(self) -> int | None:
        """Edge that differs from the job of the first start; None before an edit."""


class Order(Enum):
    """Scope within which the rows of one producer arrive in the order in which it emitted them."""

    CHANNEL = "all that come here"
    KEY = "those of one key"
    NONE = "nothing: they were dealt out anew"


class Inbound(NamedTuple):
    """One input of a vertex.

    ``vertex``: its producer. ``hashed_by``: column by which its rows are hashed, if that is checked.
    """

    vertex: int
    order: Order
    hashed_by: int | None = None


@dataclass
class Received:
    """Rows received from one producer. ``total`` and ``squares`` are the sums of their ``seq`` and its squares."""

    last: int = 0
    rows: int = 0
    total: int = 0
    squares: int = 0

    def add(self, seq: int) -> None:
        self.last = seq
        self.rows += 1
        self.total += seq
        self.squares += seq * seq


@dataclass
class Stamp:
    """Identity of the emitting subtask and the number of rows that it has emitted."""

    emitter: int = 0
    emitted: int = 0

    def restore(self, state: RestoredState, generation_number: int) -> None:
        """Continue the count; after a rescale, begin with a new identity."""
        if state.rescaled:
            self.emitter = emitter_of(vertex_of(self.emitter), self.emitter % 64, generation_number)
            return
        emitted = state.scalars[EMITTED]
        assert isinstance(emitted, dict)
        ((emitter, count),) = emitted.items()
        assert isinstance(count, int)
        self.emitter, self.emitted = int(emitter), count

    @property
    def scalars(self) -> dict[str, Plain]:
        return {EMITTED: {str(self.emitter): self.emitted}}

    def batch(self, origins: list[int], keys: list[int], times: list[int], notes: list[int]) -> pa.RecordBatch:
        first = self.emitted + 1
        self.emitted += len(keys)
        seqs = list(range(first, self.emitted + 1))
        return batch_of((origins, keys, times, notes, [self.emitter] * len(keys), seqs))


class CheckedOperator(Operator):
    """Operator that checks its input and stamps its output. Subclasses process the rows in between.

    Args:
        vertex: its vertex.
        inputs: its inputs, by number.
        workload: access to the simulation.
    """

    def __init__(self, vertex: int, inputs: tuple[Inbound, ...], workload: Workload) -> None:
        self.stamp = Stamp()
        self._vertex = vertex
        self._inputs = inputs
        self._workload = workload
        self._received: dict[int, Received] = {}
        self._last_of_key: dict[tuple[int, int], int] = {}
        self._watermark_us: int | None = None
        self._closed: list[tuple[int, int, int]] = []

    def open(self, context: OperatorContext) -> None:
        self.stamp.emitter = emitter_of(self._vertex, context.subtask)
        self._subtask = SubtaskId(self._vertex, context.subtask)
        self._max_parallelism = context.max_parallelism
        self._owned = owned_range(context.subtask, context.parallelism, context.max_parallelism)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return self.process_input(0, batch)

    def process_input(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        origins, keys, times, notes, emitters, seqs = columns_of(batch)
        self._check(number, keys, emitters, seqs)
        self._check_times(keys, times, self._inputs[number].order)
        if (column := self._inputs[number].hashed_by) is not None:
            self._check_owner(keys if column == KEY else times)
        self._workload.spend_time(self._subtask, len(seqs))
        yield from self.rows(number, origins, keys, times, notes)

    @abstractmethod
    def rows(
        self, number: int, origins: list[int], keys: list[int], times: list[int], notes: list[int]
    ) -> Iterator[pa.RecordBatch]:
        """Process rows."""

    def due(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Return the rows that a watermark makes due, in batches."""
        return iter(())

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        if self._watermark_us is not None and watermark_us < self._watermark_us:
            raise SimulationFailure(
                f"{self._subtask}: the watermark falls from {self._watermark_us} to {watermark_us}", "watermark"
            )
        self._watermark_us = watermark_us
        return self.due(watermark_us)

    def tables(self) -> dict[str, TableCapture]:
        """The operator's own state."""
        return {}

    def restore_tables(self, state: RestoredState) -> None:
        """Take the operator's own state back."""

    def snapshot(self) -> OperatorState:
        scalars: dict[str, Plain] = {
            **self.stamp.scalars,
            WATERMARK: self._watermark_us,
            EDITED: self._workload.edited,
            CLOSED: [list(closed) for closed in self._closed_by_now()],
            RECEIVED: {str(emitter): [r.last, r.rows, r.total, r.squares] for emitter, r in self._received.items()},
        }
        return OperatorState(self.tables(), scalars)

    def restore(self, state: RestoredState) -> None:
        self.stamp.restore(state, self._workload.generation_number)
        for part in state.parts:
            scalars: Mapping[str, Any] = part.scalars
            clipped = [(max(first, part.first), min(last, part.last), us) for first, last, us in scalars[CLOSED]]
            self._closed += [one for one in clipped if one[0] <= one[1]]
            if not state.rescaled:
                # After an edit each exchange starts from its least watermark, so that it may be lower than before.
                self._watermark_us = scalars[WATERMARK] if scalars[EDITED] == self._workload.edited else None
                self._received = {int(emitter): Received(*sums) for emitter, sums in scalars[RECEIVED].items()}
        self.restore_tables(state)

    def _closed_by_now(self) -> list[tuple[int, int, int]]:
        """Return key groups with the watermark of this subtask or a former owner: first, last, watermark.

        The key groups are stored, because the parts of a restored state cannot tell them: if an edge into this vertex
        was edited, each part has all key groups.
        """
        own = [] if self._watermark_us is None else [(*self._owned, self._watermark_us)]
        return list(dict.fromkeys([*self._closed, *own]))

    def _check(self, number: int, keys: list[int], emitters: list[int], seqs: list[int]) -> None:
        sender, order, _ = self._inputs[number]
        for key, emitter, seq in zip(keys, emitters, seqs, strict=True):
            known = self._received.get(emitter)
            if known is None:
                if vertex_of(emitter) != sender:
                    raise SimulationFailure(
                        f"{self._subtask}: a row of {name_of(emitter)} comes by input {number}", "order"
                    )
                known = self._received[emitter] = Received()
            of_key = self._last_of_key.get((emitter, key), 0)
            last = {Order.CHANNEL: known.last, Order.KEY: of_key, Order.NONE: 0}[order]
            if seq <= last:
                raise SimulationFailure(f"{self._subtask}: row {seq} of {name_of(emitter)} comes after {last}", "order")
            self._last_of_key[emitter, key] = seq
            known.add(seq)

    def _check_owner(self, values: list[int]) -> None:
        """Check that rows arrive at the subtask that owns their key group."""
        first, last = self._owned
        for value in values:
            if not first <= group_of(value, self._max_parallelism) <= last:
                raise SimulationFailure(f"{self._subtask}: a row that is hashed by {value} belongs elsewhere", "owners")

    def _check_times(self, keys: list[int], times: list[int], order: Order) -> None:
        """Check that no row is late: later than the watermark, or than that of its key's subtask before a rescale."""
        if self._watermark_us is not None and min(times) < self._watermark_us:
            raise SimulationFailure(
                f"{self._subtask}: a row of {min(times)} comes behind watermark {self._watermark_us}", "watermark"
            )
        for first, last, closed_us in self._closed if order is Order.KEY else ():
            for key, time in zip(keys, times, strict=True):
                if time < closed_us and first <= group_of(key, self._max_parallelism) <= last:
                    raise SimulationFailure(
                        f"{self._subtask}: a row of {time} comes behind {closed_us}, where key {key} was before",
                        "watermark",
                    )


class SourceStamp(Operator):
    """Operator after the watermark of a source that stamps its rows."""

    def __init__(self, vertex: int, workload: Workload) -> None:
        self._vertex = vertex
        self._workload = workload
        self._stamp = Stamp()

    def open(self, context: OperatorContext) -> None:
        self._stamp.emitter = emitter_of(self._vertex, context.subtask)
        self._subtask = SubtaskId(self._vertex, context.subtask)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        origins, keys, times, notes, _, _ = columns_of(batch)
        self._workload.spend_time(self._subtask, len(keys))
        yield self._stamp.batch(origins, keys, times, notes)

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars=self._stamp.scalars)

    def restore(self, state: RestoredState) -> None:
        self._stamp.restore(state, self._workload.generation_number)
