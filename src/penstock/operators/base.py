"""The contract between a subtask and its operators.

All methods are called on the subtask's own thread, never concurrently. Call order::

    create -> open -> [restore] -> (process | advance | finish_epoch, snapshot)* -> close

An operator never blocks and never sees a barrier: the subtask calls ``finish_epoch`` and then ``snapshot`` between
two steps. ``process``, ``advance`` and ``finish_epoch`` are lazy. Between two ``next()`` calls the subtask may handle
control messages and take a snapshot. Therefore **the state must be consistent at every yield**: a row is either still
in the state or already yielded, never both and never neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock.errors import ProtocolViolation
from penstock.model.plain import Plain
from penstock.state.table import KeyedTable, StateBackend, StoredRows, TableCapture


def no_side_outputs(port: str, batch: pa.RecordBatch) -> None:
    """Raise ``ProtocolViolation``: the ``emit`` of an operator without side outputs."""
    raise ProtocolViolation("an operator", "without side outputs", f"rows for port {port!r}")


@dataclass(frozen=True)
class OperatorContext:
    """Environment of one operator instance.

    Attributes:
        backend: creates the operator's keyed tables; it is closed after the operator.
        emit: sends rows to the edges of a port immediately. Call it only in ``process`` or ``advance``. As with yielded
            rows, the rows must no longer be in the state at the next yield.
        now_ms: returns the wall-clock time of the current step, in milliseconds since 1970. It is constant within a
            step.
    """

    operator_id: str
    subtask: int
    parallelism: int
    max_parallelism: int
    backend: StateBackend
    emit: Callable[[str, pa.RecordBatch], None] = no_side_outputs
    now_ms: Callable[[], int] = lambda: 0


@dataclass(frozen=True)
class OperatorState:
    """State of one operator in one subtask at one moment. It is written later, on another thread.

    Attributes:
        tables: keyed state by table name.
        scalars: small operator-level state (a watermark, split positions).
    """

    tables: Mapping[str, TableCapture] = field(default_factory=dict)
    scalars: Mapping[str, Plain] = field(default_factory=dict)

    def release(self) -> None:
        """Release the captures of the tables. Call it once."""
        for captured in self.tables.values():
            captured.release()


@dataclass(frozen=True)
class ScalarPart:
    """Scalars that one subtask stored in a snapshot.

    Attributes:
        index: index of the subtask that stored them.
        first, last: range of the key groups, both inclusive, that the restored subtask takes over from that subtask.
            Without a rescale the range covers all key groups. It is meaningless for an operator whose input is not
            hash-partitioned.
        scalars: the stored scalars by name.
    """

    index: int
    first: int
    last: int
    scalars: Mapping[str, Plain]


class LocalCopy(Protocol):
    """Local state of one table that a restart may reuse: the stored table, if this process still has it in memory."""

    def take(self, empty: KeyedTable) -> KeyedTable | None:
        """Return the retained table if there is one that is compatible with ``empty``. Call it once."""

    def begin(self, table: KeyedTable) -> None:
        """Start to retain ``table``, which now holds the stored content, either reused or loaded."""


@dataclass(frozen=True)
class RestoredState:
    """State from which one subtask of an operator starts.

    Attributes:
        tables: by name, the stored pieces of each table in the order in which they must be applied. They contain only
            this subtask's key groups. Each iterable can be consumed once; it reads from storage during the iteration.
        parts: scalars of the snapshot's subtasks that this subtask succeeds. After a rescale there may be several or
            none.
        rescaled: True if the snapshot was taken at another parallelism.
        local: by table name, local state that may be reused instead of loading the pieces.
    """

    tables: Mapping[str, Iterable[StoredRows]] = field(default_factory=dict)
    parts: Sequence[ScalarPart] = ()
    rescaled: bool = False
    local: Mapping[str, LocalCopy] = field(default_factory=dict)

    def fill(self, name: str, empty: KeyedTable) -> KeyedTable:
        """Return the table with its stored content. Call it once per table, before any other use of the table.

        The result is ``empty`` after loading the stored pieces, or a reused local table. In the latter case ``empty``
        is closed.
        """
        local = self.local.get(name)
        table = None if local is None else local.take(empty)
        if table is None:
            table = empty
            table.load(self.tables.get(name, ()))
        else:
            empty.close()
        if local is not None:
            local.begin(table)
        return table

    @property
    def scalars(self) -> Mapping[str, Plain]:
        """Scalars of the first part; empty without parts. For operators that have at most one part, or equal parts."""
        return self.parts[0].scalars if self.parts else {}

    def rows(self, table: str) -> list[pa.RecordBatch]:
        """Return the rows of a table that is never stored as a delta."""
        pieces = list(self.tables.get(table, ()))
        assert not any(piece.is_delta for piece in pieces)
        return [piece.batch for piece in pieces]


class Operator(ABC):
    """Operator of one subtask. Subclasses override what they need; the defaults suit an operator without state."""

    def open(self, context: OperatorContext) -> None:  # noqa: B027 - an optional hook
        """Prepare; called once, before anything else."""

    @abstractmethod
    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Consume one non-empty slice of input and yield zero or more non-empty batches of the output schema.

        An exception raised by user code must be wrapped as ``FunctionError``.
        """

    def process_input(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Process rows from input ``number``. Only the first operator of a vertex can have several inputs.

        Inputs are the edges into the vertex, numbered from 0 in the order of the graph. The default ignores the number,
        as in a union.
        """
        return self.process(batch)

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that become due when the input watermark reaches ``watermark_us``, in bounded batches.

        The watermark never falls. An empty batch is not passed on: the operator yields one to interrupt long work that
        has no rows yet.

        The watermark is passed downstream after the iterator is exhausted. After a restore, ``advance`` is called with
        the restored watermark before any input. It must not yield rows again that were yielded before the snapshot.
        """
        return iter(())

    def wake_at_ms(self) -> float | None:
        """Return the wall-clock time, in milliseconds since 1970, at which ``on_processing_time`` must be called.

        A time in the past means immediately. None means that nothing becomes due before more input arrives.
        """
        return None

    def on_processing_time(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are due at the current wall-clock time, like ``advance``.

        Snapshots may be taken between two steps of the iterator, but no input is processed. Input may be processed
        between two calls.
        """
        return iter(())

    def has_pending_rows(self) -> bool:
        """Return True if the operator has rows that are not processed yet, or cannot process rows yet.

        Another process may be working on the rows or may still be starting, or this operator may process them in
        pieces. ``collect`` yields the results. The operator gets no further input until then, except if it
        ``accepts_more``; input that arrives nevertheless must wait.
        """
        return False

    def collect(self) -> Iterator[pa.RecordBatch]:
        """Yield results that have arrived since the last call, or results of the next piece of work. Never blocks.

        The chain calls it repeatedly while ``has_pending_rows``. An empty batch means progress without rows.
        """
        return iter(())

    def works_in_pieces(self) -> bool:
        """Return True if the operator processes a slice in pieces of some milliseconds, so that slices may be large."""
        return False

    def accepts_more(self) -> bool:
        """Return True if the operator takes further input while rows are pending, to process both together."""
        return False

    def external_ms(self) -> float:
        """Return the total time in milliseconds that other processes have worked for this operator."""
        return 0.0

    def may_hold_rows(self) -> bool:
        """Return True if the operator may hold rows until a user function yields them, at most until the epoch ends.

        No watermark overtakes these rows, because they would be late then. This holds for received watermarks and for
        those that a later operator generates. The source reader does not become idle while rows are held.
        """
        return False

    def emitted_watermark(self) -> int | None:
        """Return the watermark that this operator generates, or None if it only forwards that of its input."""
        return None

    def reached_watermark(self) -> int | None:
        """Return the largest watermark that this operator has seen, or None. Idle readers advance to it.

        It exceeds ``emitted_watermark`` only after a restore at another parallelism or while the watermark is held.
        """
        return self.emitted_watermark()

    def hold_watermark(self, held: bool) -> None:  # noqa: B027
        """Stop the generated watermark while ``held`` is True.

        After a restore, splits that were read in parallel may be read one after the other. The hold prevents one split
        from making the rows of the next one late.
        """

    def advance_generated(self, watermark_us: int) -> None:  # noqa: B027
        """Advance the watermark that this operator generates to a watermark that other readers have reached."""

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that belong before the next barrier: output of user iterators, results in update mode."""
        return iter(())

    def take_replaced(self) -> bool:
        """Return True if ``finish_epoch`` has yielded a complete result since the last call of this method.

        The complete result replaces the previous one, even if later operators remove all of its rows.
        """
        return False

    def snapshot(self) -> OperatorState:
        """Return the state by reference to immutable data (copy on write). It must take milliseconds and do no I/O."""
        return OperatorState()

    def restore(self, state: RestoredState) -> None:  # noqa: B027
        """Restore the state; called at most once, after ``open``. ``state`` has all rows that this subtask owns."""

    def counters(self) -> Mapping[str, int]:
        """Return counters, such as ``{"rows_dropped_late": 3, "state_rows": 10}``, and gauges (named ``state_*``)."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Release resources; called once, also after a failure."""
