"""Operator chain of one subtask: operators without channels between them.

Rows are pushed through at once: what a call yields is with the next operator, or emitted, before the call goes on. A
watermark is a task that can be suspended after every batch: operator k's ``advance`` is run to its end, each batch
pushed through k+1 and on, before the watermark goes to k+1. While such a task is open there may be snapshots, but no
input; operators are consistent at every yield, and the stored input watermark is advanced to again after a restore.
In front of k+1 a watermark waits, without holding up input, for as long as k lags behind its own. A watermark that k
generates waits while an operator in front of k holds rows, because these would be late. What operators do by the clock
(``on_processing_time``) is such a task as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from penstock.model.elements import END_OF_TIME_US
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState


@dataclass(frozen=True)
class Stage:
    """One operator of the chain under the id its state is kept by."""

    operator_id: str
    operator: Operator


def open_stages(
    specs: Sequence[OperatorSpec],
    context: Callable[[str], OperatorContext],
    restored: Mapping[str, RestoredState],
    closing: ExitStack,
) -> list[Stage]:
    """Create, open and restore the operators; ``closing`` closes what was opened, also after a failure half-way."""
    stages = []
    for spec in specs:
        operator = spec.create()
        closing.callback(operator.close)
        operator.open(context(spec.operator_id))
        if spec.operator_id in restored:
            operator.restore(restored[spec.operator_id])
        stages.append(Stage(spec.operator_id, operator))
    return stages


class Chain:
    """Owned by the subtask's thread.

    Args:
        stages: opened and restored operators in order; may be empty.
        emit: takes every batch that leaves the last operator.
        forward: takes every watermark that leaves the last operator; it only rises.
        between: called whenever an operator has yielded rows. It may raise to abandon the work: then the chain can
            only be closed.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        emit: Callable[[pa.RecordBatch], None],
        forward: Callable[[int], None],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._stages = list(stages)
        self._elsewhere = [
            (index, stage.operator)
            for index, stage in enumerate(stages)
            if type(stage.operator).has_pending_rows is not Operator.has_pending_rows
        ]
        self._timed = [
            (index, stage.operator)
            for index, stage in enumerate(stages)
            if type(stage.operator).wake_at_ms is not Operator.wake_at_ms
        ]
        self._holders = [
            (index, stage.operator)
            for index, stage in enumerate(stages)
            if type(stage.operator).may_hold_rows is not Operator.may_hold_rows
        ]
        self._last_generator = max(
            (
                index
                for index, stage in enumerate(stages)
                if type(stage.operator).advance_generated is not Operator.advance_generated
            ),
            default=0,
        )
        self._emit = emit
        self._forward = forward
        self._between = between
        # _due[k] is the watermark in front of operator k, _done[k] the one it was advanced to; the last place is the
        # way out.
        self._due: list[int | None] = [None] * (len(self._stages) + 1)
        self._done: list[int | None] = [None] * (len(self._stages) + 1)
        self._advancing: tuple[int, int | None, Iterator[pa.RecordBatch]] | None = None  # None: by the clock
        self._collect_generated()

    @property
    def advancing(self) -> bool:
        """True if ``advance`` has something to do; until it is done no input may be processed."""
        return self._advancing is not None or self._next_due() is not None

    def process(self, batch: pa.RecordBatch, number: int = 0) -> None:
        """Push one slice through all operators; ``number``: which input of the vertex it came by."""
        if not self._stages:
            self._emit(batch)
            return
        for out in self._stages[0].operator.process_input(number, batch):
            self._push(1, out)
        self._collect_generated()

    @property
    def has_pending_rows(self) -> bool:
        """True if an operator has rows in another process. Until ``collect`` has brought them, only operators that
        ``accepts_more`` take input."""
        return bool(self._elsewhere) and any(operator.has_pending_rows() for _, operator in self._elsewhere)

    @property
    def works_in_pieces(self) -> bool:
        """True if a large slice delays nothing: see ``Operator``."""
        return bool(self._stages) and self._stages[0].operator.works_in_pieces()

    def accepts_more(self, now_ms: float) -> bool:
        """Return True if input may be processed although rows are in another process (see ``Operator``). Not if
        something else is due, which might never have its turn."""
        if self.advancing or not (self._stages and self._stages[0].operator.accepts_more()):
            return False
        if any(operator.has_pending_rows() for index, operator in self._elsewhere if index):
            return False
        wake_at_ms = self.wake_at_ms()
        return wake_at_ms is None or wake_at_ms > now_ms

    def collect(self) -> bool:
        """Push on the results of rows that were in another process. Return False if there were none."""
        came = False
        for index, operator in self._elsewhere:
            if operator.has_pending_rows():
                came |= self._collect(index, operator) or not operator.has_pending_rows()
        self._collect_generated()
        return came

    def _collect(self, index: int, operator: Operator) -> bool:
        came = False
        for batch in operator.collect():
            if batch.num_rows:
                self._push(index + 1, batch)
            came = True
        return came

    def external_ms(self) -> float:
        """Return how long other processes have worked for this chain."""
        return sum(operator.external_ms() for _, operator in self._elsewhere)

    def watermark(self, timestamp_us: int) -> None:
        """Note that the subtask's input watermark rose; ``advance`` carries it through."""
        self._raise_due(0, timestamp_us)

    def advance(self) -> None:
        """Continue the open watermark task, by at most one batch."""
        if self._advancing is None:
            index = self._next_due()
            if index is None:
                return
            self._begin(index)
            return
        index, timestamp_us, batches = self._advancing
        batch = next(batches, None)
        if batch is not None:
            if batch.num_rows:
                self._push(index + 1, batch)
                self._collect_generated()
            return
        self._advancing = None
        if timestamp_us is not None and self._stages[index].operator.emitted_watermark() is None:
            self._raise_due(index + 1, timestamp_us)
        self._collect_generated()

    def finish_advancing(self) -> None:
        """Carry the watermark that waits through the whole chain.

        An aligned checkpoint after ``AdvanceWatermark`` must hold every window that it closes.
        """
        while self.advancing:
            self.advance()

    @property
    def is_settled(self) -> bool:
        """True if what was taken in has gone through all operators."""
        return not (self.advancing or self.has_pending_rows)

    def wake_at_ms(self) -> float | None:
        """Return when ``begin_timed`` has something to do, or None."""
        if self._advancing is not None:
            return None
        return min((at for _, operator in self._timed if (at := operator.wake_at_ms()) is not None), default=None)

    def begin_timed(self, now_ms: float) -> bool:
        """Begin the timed work of the first operator whose time has come; ``advance`` continues it. Return False if
        there is none, or if something else comes first."""
        if self.advancing or self.has_pending_rows:
            return False
        for index, operator in self._timed:
            at = operator.wake_at_ms()
            if at is not None and at <= now_ms:
                self._advancing = index, None, operator.on_processing_time()
                return True
        return False

    def stop_clock(self) -> None:
        """Let no operator act by the clock any more."""
        self._timed = []

    def advance_generated(self, timestamp_us: int) -> None:
        """Advance operators that generate watermarks, because their source is idle. The end of event time goes through
        all operators instead, as if it had arrived."""
        if timestamp_us == END_OF_TIME_US:
            self.watermark(timestamp_us)
            return
        for stage in self._stages:
            stage.operator.advance_generated(timestamp_us)
        self._collect_generated()

    @property
    def holds_rows(self) -> bool:
        """True if an operator in front of one that generates watermarks holds rows."""
        return self._holds_before(self._last_generator)

    def release_rows(self) -> None:
        """End the calls of all operators in front of the last one that generates watermarks, as ``finish_epoch`` does.

        Their held rows go out, and then the watermark that waits for these rows.
        """
        for index in range(self._last_generator):
            for batch in self._stages[index].operator.finish_epoch():
                self._push(index + 1, batch)
        self._collect_generated()

    def generated_watermark(self) -> int | None:
        """Return the largest watermark that an operator of this chain has generated and sent."""
        announced = [
            due
            for stage, due in zip(self._stages, self._due[1:], strict=True)
            if due is not None and stage.operator.emitted_watermark() is not None
        ]
        return max(announced, default=None)

    def hold_watermark(self, held: bool) -> None:
        """Call ``Operator.hold_watermark`` of all operators."""
        for stage in self._stages:
            stage.operator.hold_watermark(held)

    def reached_watermark(self) -> int | None:
        """Return the largest event time that operators which generate watermarks have seen, as a watermark."""
        reached = [w for s in self._stages if (w := s.operator.reached_watermark()) is not None]
        return max(reached, default=None)

    def finish_epoch(self, aligned: bool = False, strict: bool = False) -> None:
        """Let each operator in order yield what belongs before the barrier.

        Args:
            aligned: the watermark that waits for these rows goes on as well, with everything that it makes due.
            strict: of aligned barriers, one that can only stay aligned: no rows stay in another process, also where
                they could be part of an operator's state.
        """
        if self.has_pending_rows:
            self._yield_all(all_rows=aligned and strict)
        self._yield_all(all_rows=False)
        while aligned and self.advancing:
            self.finish_advancing()
            self._yield_all(all_rows=False)

    def _yield_all(self, all_rows: bool) -> None:
        for index, stage in enumerate(self._stages):
            for batch in stage.operator.finish_epoch():
                self._push(index + 1, batch)
            while all_rows and stage.operator.has_pending_rows() and stage.operator.may_hold_rows():
                self._collect(index, stage.operator)
        self._collect_generated()

    def take_replaced(self) -> bool:
        """Return True if an operator has yielded a whole result since the last call."""
        return any(stage.operator.take_replaced() for stage in self._stages)

    def snapshot(self) -> dict[str, OperatorState]:
        """Return the state of every operator that has any, by operator id."""
        states = {stage.operator_id: stage.operator.snapshot() for stage in self._stages}
        return {operator_id: state for operator_id, state in states.items() if state.tables or state.scalars}

    def counters(self) -> dict[str, int]:
        """Return the operators' counters, summed by name."""
        total: dict[str, int] = {}
        for stage in self._stages:
            for name, count in stage.operator.counters().items():
                total[name] = total.get(name, 0) + count
        return total

    def _push(self, index: int, batch: pa.RecordBatch) -> None:
        self._between()
        if index == len(self._stages):
            self._emit(batch)
            return
        for out in self._stages[index].operator.process(batch):
            self._push(index + 1, out)

    def _begin(self, index: int) -> None:
        timestamp_us = self._due[index]
        assert timestamp_us is not None
        self._done[index] = timestamp_us
        if index == len(self._stages):
            self._forward(timestamp_us)
        else:
            self._advancing = index, timestamp_us, self._stages[index].operator.advance(timestamp_us)

    def _next_due(self) -> int | None:
        for index, due in enumerate(self._due):
            done = self._done[index]
            if due is not None and (done is None or due > done) and not self._lags_before(index):
                return index
        return None

    def _lags_before(self, index: int) -> bool:
        return index > 0 and self._stages[index - 1].operator.may_hold_rows()

    def _raise_due(self, index: int, timestamp_us: int) -> None:
        due = self._due[index]
        if due is None or timestamp_us > due:
            self._due[index] = timestamp_us

    def _collect_generated(self) -> None:
        for index, stage in enumerate(self._stages):
            generated = stage.operator.emitted_watermark()
            if generated is not None and not self._holds_before(index):
                self._raise_due(index + 1, generated)

    def _holds_before(self, index: int) -> bool:
        """Return True if rows of the input have not reached operator ``index`` yet."""
        if self._advancing is not None and self._advancing[0] < index:
            return True
        return any(holder < index and operator.may_hold_rows() for holder, operator in self._holders)
