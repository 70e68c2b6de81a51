"""Join of two streams: each row is stored as long as rows of the other side may match it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa

from penstock.functions.core.trees import grows_by_value
from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US
from penstock.model.job_graph import OperatorSpec
from penstock.model.metrics import ROWS_DROPPED_LATE, STATE_BYTES, STATE_ROWS
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.operators.batches import make_batch
from penstock.operators.closed_groups import CLOSED, ClosedGroups
from penstock.operators.join.pairs import Mask, PairCondition, PairFilter, Rows, taking_rows
from penstock.operators.join.side_state import JoinSide, JoinSideState, KeyMatches

LEFT, RIGHT = 0, 1
TABLES = ("left", "right")
_NEXT = ("next_left", "next_right")
"""Names of the scalars with the number of each side's next row."""

MAX_PAIRS = 65_536
"""Maximum number of pairs in one batch."""
_EMIT_ROWS = 8192
"""Maximum number of rows that are removed from the state in one step. It bounds the duration of a step."""


class StreamJoinKind(Enum):
    """Output of the join.

    PAIRS: all pairs, and the unmatched rows of preserved sides. SEMI: each row of the left side that has a match.
    """

    PAIRS = "pairs"
    SEMI = "semi"


@dataclass(frozen=True, kw_only=True)
class StreamJoinSpec(OperatorSpec):
    """Specification of a stream-stream join. Both inputs are partitioned by their keys; input 0 is the left side.

    Attributes:
        output_schema: the first ``width`` columns of the left side, then those of the right side (not for SEMI).
        sides: the left and the right side. They have the same number and types of keys.
        null_safe: by key, True if null equals null.
        condition: condition in addition to equal keys; its first columns are those of the left side.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    kind: StreamJoinKind
    sides: tuple[JoinSide, JoinSide]
    null_safe: tuple[bool, ...]
    condition: PairCondition | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.null_safe, "rows are spread by keys"
        assert self.kind is StreamJoinKind.PAIRS or not any(side.is_preserved for side in self.sides)

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {name: side.stored_schema for name, side in zip(TABLES, self.sides, strict=True)}

    @property
    def state_keys(self) -> dict[str, int]:
        return dict.fromkeys(TABLES, len(self.null_safe) + 1)

    @property
    def keeps(self) -> str:
        return f"of the left side {self.sides[0].keeps}; of the right side {self.sides[1].keeps}"

    @property
    def multiplies(self) -> bool:
        return True

    @property
    def grows_by_value(self) -> bool:
        return self.condition is not None and grows_by_value([self.condition.expression])

    def create(self) -> Operator:
        return StreamJoinOperator(self)


class StreamJoinOperator(Operator):
    """Stream-stream join, like Spark's ``StreamingSymmetricHashJoinExec``.

    A row is joined with the stored rows of the other side that have its key, and is then stored itself. It is removed
    when the watermark shows that no match can arrive any more (``ExpiryBound``). An unmatched row of a preserved side
    is emitted with nulls at that time, or immediately if it can never have a match.

    On sides with an event time, rows at or below the watermark are late and dropped. The time up to which rows are late
    is kept by key group, as in ``FinalAggregateOperator``.

    A slice may give many batches, which belong to one step, as with ``StaticJoinOperator``.
    """

    def __init__(self, spec: StreamJoinSpec) -> None:
        self._spec = spec
        self._condition = None if spec.condition is None else PairFilter(spec.condition)
        self._empty = make_batch([pa.nulls(0, kind) for kind in spec.output_schema.types], spec.output_schema, 0)
        self._watermark_us: int | None = None
        self._emitted_us: int | None = None
        self._late_rows = 0
        self._sides: tuple[JoinSideState, ...] = ()

    def open(self, context: OperatorContext) -> None:
        removed_when_matched = (self._spec.kind is StreamJoinKind.SEMI, False)
        self._sides = tuple(
            JoinSideState(
                side,
                self._spec.null_safe,
                context.backend.create_table(
                    f"{context.operator_id}/{name}", side.table_spec(context.max_parallelism, goes)
                ),
            )
            for name, side, goes in zip(TABLES, self._spec.sides, removed_when_matched, strict=True)
        )
        self._closed = ClosedGroups(context.subtask, context.parallelism, context.max_parallelism)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a join gets its rows by process_input, with the number of the input")

    def process_input(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        own, other = self._sides[number], self._sides[1 - number]
        batch = self._drop_late_rows(own.spec, batch)
        if not batch.num_rows:
            return
        unmatchable = own.unmatchable(batch)
        if unmatchable is not None:
            if own.spec.is_preserved:
                yield self._with_nulls(number, batch.filter(pa.array(unmatchable)))
            batch = batch.filter(pa.array(~unmatchable))
            if not batch.num_rows:
                return
        matches = other.find_key_matches(own.spec.key_columns(batch), batch.num_rows)
        matched, hit = np.zeros(batch.num_rows, np.bool_), np.zeros(matches.rows, np.bool_)
        semi = self._spec.kind is StreamJoinKind.SEMI
        for rows, positions in self._matching_pairs(number, batch, matches):
            matched[rows] = hit[positions] = True
            if not semi:
                yield self._pairs(number, batch, rows, matches, positions)
        if semi and number == RIGHT:
            yield from self._emit_matched_left(matches, hit)
        elif semi:
            if matched.any():
                yield batch.filter(pa.array(matched)).select(list(range(own.spec.width)))
            batch, matched = batch.filter(pa.array(~matched)), matched[~matched]
        elif other.spec.is_preserved:
            other.mark_matched(matches, hit)
        yield from self._store(number, batch, matched)

    def _store(self, number: int, batch: pa.RecordBatch, matched: Mask) -> Iterator[pa.RecordBatch]:
        """Store the rows that can still find a match. Yield the other unmatched rows of a preserved side with nulls."""
        own = self._sides[number]
        expired = own.spec.expired(batch, self._watermark_us)
        if expired is not None:
            unmatched = expired & ~matched
            if own.spec.is_preserved and unmatched.any():
                yield self._with_nulls(number, batch.filter(pa.array(unmatched)))
            batch, matched = batch.filter(pa.array(~expired)), matched[~expired]
        if batch.num_rows:
            own.add(batch, matched)

    def _drop_late_rows(self, side: JoinSide, batch: pa.RecordBatch) -> pa.RecordBatch:
        if side.event_time is None:
            return batch
        late = self._closed.find_late_rows(self._watermark_us, side.key_columns(batch), batch.column(side.event_time))
        if late is None:
            return batch
        self._late_rows += int(np.count_nonzero(late))
        return batch.filter(pa.array(~late))

    def _matching_pairs(self, number: int, batch: pa.RecordBatch, matches: KeyMatches) -> Iterator[tuple[Rows, Rows]]:
        """Yield the matching pairs, as rows of the batch and positions of stored rows."""
        for rows, positions in matches.candidates.pairs(MAX_PAIRS):
            if self._condition is not None:
                columns = taking_rows(batch.column, rows), taking_rows(matches.column, positions)
                first, second = columns if number == LEFT else columns[::-1]
                passed = self._condition.matches(first, second, len(rows))
                rows, positions = rows[passed], positions[passed]
            if len(rows):
                yield rows, positions

    def _pairs(
        self, number: int, batch: pa.RecordBatch, rows: Rows, matches: KeyMatches, positions: Rows
    ) -> pa.RecordBatch:
        own = map(taking_rows(batch.column, rows), range(self._spec.sides[number].width))
        other = map(taking_rows(matches.column, positions), range(self._spec.sides[1 - number].width))
        columns = [*own, *other] if number == LEFT else [*other, *own]
        return make_batch(columns, self._spec.output_schema, len(rows))

    def _emit_matched_left(self, matches: KeyMatches, hit: Mask) -> Iterator[pa.RecordBatch]:
        """Remove the rows of the left side that have found their first match, and yield them."""
        if hit.any():
            positions = np.flatnonzero(hit)
            chosen = pa.array(positions)
            width = self._spec.sides[LEFT].width
            columns = [matches.column(column).take(chosen) for column in range(width)]
            self._sides[LEFT].remove(matches, positions)
            yield make_batch(columns, self._spec.output_schema, len(positions))

    def _with_nulls(self, number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return unmatched rows of a preserved side, with nulls for the other side."""
        own = rows.columns[: self._spec.sides[number].width]
        other = self._spec.sides[1 - number]
        nulls = [pa.nulls(rows.num_rows, other.schema.field(column).type) for column in range(other.width)]
        columns = [*own, *nulls] if number == LEFT else [*nulls, *own]
        return make_batch(columns, self._spec.output_schema, rows.num_rows)

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Remove the rows that can no longer match. Rows are removed from the state just before they are yielded.

        A step without rows yields an empty batch. At the end of event time, all rows of preserved sides are removed.
        """
        if self._watermark_us is not None and watermark_us <= self._watermark_us:
            return
        self._watermark_us = watermark_us
        for number, side in enumerate(self._sides):
            leaving = [side.take_expired(watermark_us, _EMIT_ROWS)]
            if watermark_us == END_OF_TIME_US and side.spec.is_preserved:
                leaving.append(side.take_remaining(_EMIT_ROWS))
            for unmatched in (rows for part in leaving for rows in part):
                yield self._with_nulls(number, unmatched) if unmatched.num_rows else self._empty
        self._emitted_us = self._output_watermark(watermark_us)

    def _output_watermark(self, watermark_us: int) -> int:
        """Return the output watermark: no row that is emitted later is older, including stored rows."""
        if watermark_us == END_OF_TIME_US:
            return watermark_us
        if any(side.bound is None for side in self._spec.sides):
            return START_OF_TIME_US
        return min(watermark_us, *(side.bound.until(watermark_us) for side in self._spec.sides if side.bound))

    def emitted_watermark(self) -> int | None:
        return self._emitted_us

    def snapshot(self) -> OperatorState:
        timed = any(side.event_time is not None for side in self._spec.sides)
        closed = self._closed.ranges(self._watermark_us) if timed else []
        return OperatorState(
            tables={name: side.table.capture() for name, side in zip(TABLES, self._sides, strict=True)},
            scalars={CLOSED: closed} | {name: side.next for name, side in zip(_NEXT, self._sides, strict=True)},
        )

    def restore(self, state: RestoredState) -> None:
        """Restore the state except the watermark, which ``advance`` gets again before any input."""
        for name, counter, side in zip(TABLES, _NEXT, self._sides, strict=True):
            if name in state.tables:
                side.table = state.fill(name, side.table)
            for part in state.parts:
                number = part.scalars.get(counter, 0)
                assert isinstance(number, int)
                side.next = max(side.next, number)
        self._closed.restore(state.parts)

    def counters(self) -> Mapping[str, int]:
        return {
            STATE_ROWS: sum(len(side.table) for side in self._sides),
            STATE_BYTES: sum(side.table.nbytes for side in self._sides),
            ROWS_DROPPED_LATE: self._late_rows,
        }

    def close(self) -> None:
        for side in self._sides:
            side.table.close()
