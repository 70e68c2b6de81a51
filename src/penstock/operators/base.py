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
    """What an operator may know about where it runs.

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
    """What one subtask of an operator starts from.

    Attributes:
        tables: the stored pieces of each table, of this subtask's key groups alone, in the order in which they are to
            be applied. Each may be iterated over once, and is read from storage while it is.
        parts: scalars of the subtasks of the snapshot whose successor this one is; several, or none, if the
            parallelism was another one.
        rescaled: it was.
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
        """Of the first part; empty without parts. For an operator whose parts are all alike, or that never has more
        than one."""
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
        """As ``process``, for the first operator of a vertex with several inputs: which one the rows came by (edges of
        the vertex in the graph's order, from 0). By default it makes no difference: a union."""
        return self.process(batch)

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """The input watermark is now ``watermark_us`` (it only rises). Yield what became due, in bounded batches. An
        empty batch is passed over: it is a pause in long work that has no rows yet.

        The watermark is passed downstream after the iterator is exhausted. After a restore it is called again with the
        restored watermark before any input; what had already been yielded must not be yielded again.
        """
        return iter(())

    def wake_at_ms(self) -> float | None:
        """When ``on_time`` has something to do, as wall-clock time; in the past: at once. None: only after input."""
        return None

    def on_time(self) -> Iterator[pa.RecordBatch]:
        """The time of ``wake_at_ms`` has come: as ``advance``, between whose steps there may be snapshots but no input.
        Between two calls input is taken, if there is any."""
        return iter(())

    def under_way(self) -> bool:
        """Whether rows are being worked on in another process (the operator lags meanwhile), that process is not ready
        yet, or this one has only worked on some of them. Results come by ``collect``, and no input is wanted until they
        have; what comes all the same waits.
        """
        return False

    def collect(self) -> Iterator[pa.RecordBatch]:
        """What has come back since, or what a little more work gives; never waits. To be called now and then while
        ``under_way``. An empty batch says that there was progress."""
        return iter(())

    def pauses(self) -> bool:
        """Whether it works on a slice in pieces that take some milliseconds each (``under_way``): slices may then be as
        large as what has come in."""
        return False

    def joins(self) -> bool:
        """Whether what comes while rows are under way is best worked on together with these, and so is wanted now."""
        return False

    def away_ms(self) -> float:
        """How long other processes have worked for this operator, all calls together."""
        return 0.0

    def lags(self) -> bool:
        """Return True if the operator may hold rows until a user function yields them, at the end of the epoch at last.

        No watermark passes these rows, because they would be late: neither a received one, nor one that a later
        operator generates. The reader of the source is not idle while rows are held.
        """
        return False

    def emitted_watermark(self) -> int | None:
        """The watermark this operator generates itself, or None if it only passes its input's on."""
        return None

    def reached_watermark(self) -> int | None:
        """How far event time was seen to come here, or None: where all sources go once they are dry. Above
        ``emitted_watermark`` only after a restore at another parallelism, while others may still be behind."""
        return self.emitted_watermark()

    def hold_watermark(self, held: bool) -> None:  # noqa: B027
        """While held, what is read does not raise the watermark that is generated here: several splits that were read
        side by side before are read one after the other now, and none must make another one's rows late."""

    def advance_generated(self, watermark_us: int) -> None:  # noqa: B027
        """Raise the watermark that this operator generates to one that other readers have reached."""

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        """A barrier will be passed on: yield what belongs before it (ended user iterators, update-mode results)."""
        return iter(())

    def take_replaced(self) -> bool:
        """Whether ``finish_epoch`` has yielded a whole result since the last call: it replaces the one before, even if
        the operators behind leave nothing of it."""
        return False

    def snapshot(self) -> OperatorState:
        """The state now, by reference to immutable data (copy on write); must take milliseconds, not grow with IO."""
        return OperatorState()

    def restore(self, state: RestoredState) -> None:  # noqa: B027
        """Called once after ``open`` when there is a snapshot; ``state`` has every row this subtask owns."""

    def counters(self) -> Mapping[str, int]:
        """Monotonic counters, for example ``{"rows_dropped_late": 3, "state_rows": 10}`` (``state_*`` are gauges)."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Release resources; called once, also after a failure."""
