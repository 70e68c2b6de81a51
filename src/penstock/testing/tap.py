"""What every simulated operator does besides its own work: check what comes in and stamp what goes out.

The rows of one channel come in the order in which they were emitted, each once, however often the job was restored:
their ``seq`` rises. How many came from whom is part of the state, so that a snapshot can be audited: what its consumers
have consumed and what it holds in flight is exactly what its producers had emitted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.ids import SubtaskId
from penstock.operators.base import Operator, OperatorContext, OperatorState, Plain, RestoredState
from penstock.state.capture import TableCapture
from penstock.testing.failure import SimulationFailure
from penstock.testing.rows import batch_of, columns_of, via_of

RECEIVED = "received"
EMITTED = "emitted"
WATERMARK = "watermark_us"


class Workload(Protocol):
    """What the scheduler wants to know of user code, and may do to it."""

    def work(self, subtask: SubtaskId, rows: int) -> None:
        """So many rows are processed. Takes (virtual) time; raises FunctionError if user code is to fail now."""


@dataclass
class Received:
    """Rows that came from one producer. ``total`` and ``squares`` are of their ``seq``."""

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
    """Who emits, and how many rows it has emitted."""

    via: int = 0
    emitted: int = 0

    def batch(self, origins: list[int], keys: list[int], times: list[int], notes: list[int]) -> pa.RecordBatch:
        first = self.emitted + 1
        self.emitted += len(keys)
        seqs = list(range(first, self.emitted + 1))
        return batch_of((origins, keys, times, notes, [self.via] * len(keys), seqs))


class Tapped(Operator):
    """The only operator of a vertex that reads from others. Subclasses do the work between check and stamp.

    Args:
        vertex: whose operator it is.
        producers: vertex by input number.
        workload: see there.
    """

    def __init__(self, vertex: int, producers: tuple[int, ...], workload: Workload) -> None:
        self.stamp = Stamp()
        self._vertex = vertex
        self._producers = producers
        self._workload = workload
        self._received: dict[int, Received] = {}
        self._watermark_us: int | None = None

    def open(self, context: OperatorContext) -> None:
        self.stamp.via = via_of(self._vertex, context.subtask)
        self._subtask = SubtaskId(self._vertex, context.subtask)
        self._max_parallelism = context.max_parallelism

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return self.process_input(0, batch)

    def process_input(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        origins, keys, times, notes, vias, seqs = columns_of(batch)
        self._check(number, vias, seqs)
        if self._watermark_us is not None and min(times) < self._watermark_us:
            raise SimulationFailure(
                f"{self._subtask}: a row of {min(times)} comes behind watermark {self._watermark_us}", "watermark"
            )
        self._workload.work(self._subtask, len(seqs))
        yield from self.rows(number, origins, keys, times, notes)

    @abstractmethod
    def rows(
        self, number: int, origins: list[int], keys: list[int], times: list[int], notes: list[int]
    ) -> Iterator[pa.RecordBatch]:
        """The operator's own work."""

    def due(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """What the watermark makes due, in batches."""
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
            EMITTED: self.stamp.emitted,
            WATERMARK: self._watermark_us,
            RECEIVED: {str(via): [r.last, r.rows, r.total, r.squares] for via, r in self._received.items()},
        }
        return OperatorState(self.tables(), scalars)

    def restore(self, state: RestoredState) -> None:
        emitted, watermark_us, received = (state.scalars[name] for name in (EMITTED, WATERMARK, RECEIVED))
        assert isinstance(emitted, int)
        assert isinstance(received, dict)
        assert watermark_us is None or isinstance(watermark_us, int)
        self.stamp.emitted = emitted
        self._watermark_us = watermark_us
        self._received = {int(via): Received(*sums) for via, sums in received.items()}  # type: ignore[misc]
        self.restore_tables(state)

    def _check(self, number: int, vias: list[int], seqs: list[int]) -> None:
        for via, seq in zip(vias, seqs, strict=True):
            known = self._received.get(via)
            if known is None:
                if via // 64 != self._producers[number]:
                    raise SimulationFailure(f"{self._subtask}: a row of {via} comes by input {number}", "order")
                known = self._received[via] = Received()
            if seq <= known.last:
                raise SimulationFailure(
                    f"{self._subtask}: row {seq} of v{via // 64}[{via % 64}] comes after {known.last}", "order"
                )
            known.add(seq)


class SourceStamp(Operator):
    """Behind the watermark of a source: stamps its rows."""

    def __init__(self, vertex: int, workload: Workload) -> None:
        self._vertex = vertex
        self._workload = workload
        self._stamp = Stamp()

    def open(self, context: OperatorContext) -> None:
        self._stamp.via = via_of(self._vertex, context.subtask)
        self._subtask = SubtaskId(self._vertex, context.subtask)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        origins, keys, times, notes, _, _ = columns_of(batch)
        self._workload.work(self._subtask, len(keys))
        yield self._stamp.batch(origins, keys, times, notes)

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars={EMITTED: self._stamp.emitted})

    def restore(self, state: RestoredState) -> None:
        emitted = state.scalars[EMITTED]
        assert isinstance(emitted, int)
        self._stamp.emitted = emitted
