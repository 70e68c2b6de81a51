"""The contract between a subtask and its operators.

All methods are called on the subtask's own thread, never concurrently. Call order::

    create -> open -> [restore] -> (process | advance | finish_epoch, snapshot)* -> close

An operator never blocks and never sees a barrier: the subtask calls ``finish_epoch`` and then ``snapshot`` between
two steps. ``process``, ``advance`` and ``finish_epoch`` are lazy: between two ``next()`` calls the subtask may run
control work, *a snapshot included*, so **the state must be consistent at every yield**: a row is either still in
the state or already yielded, never both and never neither.
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
    """The ``emit`` of an operator without side outputs."""
    raise ProtocolViolation("an operator", "without side outputs", f"rows for port {port!r}")


@dataclass(frozen=True)
class OperatorContext:
    """Environment of one operator instance.

    Attributes:
        backend: makes the operator's keyed tables; it is closed after the operator.
        emit: puts rows onto the edges of a port at once, while ``process`` or ``advance`` runs: the rows must no longer
            be in the state at the next yield, as with rows that are yielded.
        now_ms: wall-clock time in milliseconds since 1970, of the step that runs: the same until the next one.
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
    """One subtask's state of one operator at one moment; writing it out happens later, elsewhere.

    Attributes:
        tables: keyed state by table name.
        scalars: small operator-level state (a watermark, split positions).
    """

    tables: Mapping[str, TableCapture] = field(default_factory=dict)
    scalars: Mapping[str, Plain] = field(default_factory=dict)

    def release(self) -> None:
        """The tables' captures are not needed any more; once."""
        for captured in self.tables.values():
            captured.release()


@dataclass(frozen=True)
class ScalarPart:
    """The scalars of one subtask that took a snapshot.

    Attributes:
        index: which one it was.
        first, last: the key groups that it had and that are this subtask's now, both inclusive; of an operator in front
            of which rows are not hashed it says nothing.
    """

    index: int
    first: int
    last: int
    scalars: Mapping[str, Plain]


class LocalCopy(Protocol):
    """A table that may still be in this process's memory as it was stored, and is to stay there for the next time."""

    def take(self, empty: KeyedTable) -> KeyedTable | None:
        """The table, if it is there and of the same make as this one; once."""

    def begin(self, table: KeyedTable) -> None:
        """This one holds what was stored, wherever it came from."""


@dataclass(frozen=True)
class RestoredState:
    """State from which one subtask of an operator starts.

    Attributes:
        tables: the stored pieces of each table, only of this subtask's key groups, in the order in which they must be
            applied. Each may be iterated over once, and is read from storage during the iteration.
        parts: scalars of the subtasks of the snapshot whose successor this one is; several, or none, if the
            parallelism was another one.
        rescaled: True if the parallelism was another one.
        local: tables, by name, that need not be loaded from their pieces.
    """

    tables: Mapping[str, Iterable[StoredRows]] = field(default_factory=dict)
    parts: Sequence[ScalarPart] = ()
    rescaled: bool = False
    local: Mapping[str, LocalCopy] = field(default_factory=dict)

    def fill(self, name: str, empty: KeyedTable) -> KeyedTable:
        """A table as it was stored: ``empty``, loaded, or another one in its place, which is then closed. To be called
        once, before anything else is done with the table."""
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
        """Scalars of the first part; empty without parts. For operators whose parts are all equal or at most one."""
        return self.parts[0].scalars if self.parts else {}

    def rows(self, table: str) -> list[pa.RecordBatch]:
        """All of a table that is only ever stored whole."""
        pieces = list(self.tables.get(table, ()))
        assert not any(piece.is_delta for piece in pieces)
        return [piece.batch for piece in pieces]


class Operator(ABC):
    """One operator of one subtask. Subclasses override what they need; the defaults are a stateless pass-through."""

    def open(self, context: OperatorContext) -> None:  # noqa: B027 - an optional hook
        """Prepare; called once, before anything else."""

    @abstractmethod
    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Consume one non-empty slice of input and yield zero or more non-empty batches of the output schema.

        An exception raised by user code must be wrapped as ``FunctionError``.
        """

    def process_input(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Process rows that came by input ``number``; only the first operator of a vertex has several inputs.

        Inputs are the edges into the vertex in the graph's order, from 0. By default the number makes no difference,
        as in a union.
        """
        return self.process(batch)

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield what becomes due with the input watermark ``watermark_us``, in bounded batches. It only rises.

        An empty batch is skipped: it interrupts long work that has no rows yet.

        The watermark is passed downstream after the iterator is exhausted. After a restore it is called again with the
        restored watermark before any input; what had already been yielded must not be yielded again.
        """
        return iter(())

    def wake_at_ms(self) -> float | None:
        """Return the wall-clock time at which ``on_processing_time`` has something to do; in the past: at once.

        None: only after input.
        """
        return None

    def on_processing_time(self) -> Iterator[pa.RecordBatch]:
        """Yield what becomes due at the time of ``wake_at_ms``, like ``advance``.

        Between two steps there may be snapshots but no input. Between two calls there may be input.
        """
        return iter(())

    def has_pending_rows(self) -> bool:
        """Return True if rows are not processed yet: another process works on them or is not ready, or this operator
        works on them in pieces.

        Results come from ``collect``. Until then the operator is given no input; input that comes nevertheless waits.
        """
        return False

    def collect(self) -> Iterator[pa.RecordBatch]:
        """Yield the results that have come since, or the results of a little more work. Never waits.

        The chain calls it repeatedly while ``has_pending_rows``. An empty batch means that there was progress.
        """
        return iter(())

    def works_in_pieces(self) -> bool:
        """Return True if it works on a slice in pieces of milliseconds: slices may be as large as the input."""
        return False

    def accepts_more(self) -> bool:
        """Return True if rows that come while others are pending are best processed together with these."""
        return False

    def external_ms(self) -> float:
        """Return how long other processes have worked for this operator, all calls together."""
        return 0.0

    def may_hold_rows(self) -> bool:
        """Return True if the operator may hold rows until a user function yields them, at the end of the epoch at last.

        No watermark passes these rows, because they would be late: neither a received one, nor one that a later
        operator generates. The reader of the source is not idle while rows are held.
        """
        return False

    def emitted_watermark(self) -> int | None:
        """Return the watermark that this operator generates, or None if it only forwards that of its input."""
        return None

    def reached_watermark(self) -> int | None:
        """Return the largest watermark that this operator has seen, or None. Idle sources advance to it.

        It is above ``emitted_watermark`` only after a restore at another parallelism, while others may be behind.
        """
        return self.emitted_watermark()

    def hold_watermark(self, held: bool) -> None:  # noqa: B027
        """Keep the generated watermark where it is while ``held``.

        Several splits that were read in parallel before a restore are read one after another now. None of them may
        make the rows of another one late.
        """

    def advance_generated(self, watermark_us: int) -> None:  # noqa: B027
        """Raise the watermark that this operator generates to one that other readers have reached."""

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        """Yield what belongs before the next barrier (ended user iterators, update-mode results)."""
        return iter(())

    def take_replaced(self) -> bool:
        """Return True if ``finish_epoch`` has yielded a whole result since the last call.

        It replaces the previous result, even if later operators remove all of its rows.
        """
        return False

    def snapshot(self) -> OperatorState:
        """Return the state by reference to immutable data (copy on write). It must take milliseconds and do no I/O."""
        return OperatorState()

    def restore(self, state: RestoredState) -> None:  # noqa: B027
        """Take over restored state, once, after ``open``; ``state`` has every row that this subtask owns."""

    def counters(self) -> Mapping[str, int]:
        """Return monotonic counters, such as ``{"rows_dropped_late": 3, "state_rows": 10}`` (``state_*``: gauges)."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Release resources; called once, also after a failure."""
