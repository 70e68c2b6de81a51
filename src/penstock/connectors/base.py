"""Base classes of sources and sinks.

A *source* discovers splits on the driver and has one reader per subtask, in the slots. A *sink* has one writer per
subtask, which stages an epoch, and a committer on the driver, which makes the epoch visible. Sources, sinks and readers
are serialized with cloudpickle into the Spark task. Splits, positions, discovery states and commit messages are stored
in snapshots, so they are plain JSON data (messages are bytes).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import NotSupported
from penstock.model.commits import EpochCommit, LogPosition
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split

COLUMNS_NOT_STORED = (
    "an earlier release staged its rows and did not store their columns, and the query's columns are others now"
)
"""Part of an error of ``SinkCommitter.check_pending``."""


BATCH_BYTES = 8 << 20
"""Default of ``SourceReader.batch_bytes``, until the query has measured a better value."""


class Source(ABC):
    """Driver side of a source, and factory of its readers."""

    schema: pa.Schema

    @property
    def kind(self) -> str:
        """Name of the class that can read the states and splits of this source.

        A restart with a source of another kind is refused. The name is stored in snapshots, so it must not change
        between releases.
        """
        return type(self).__name__

    runs_spark_jobs: bool = False
    """True if ``discover`` runs Spark jobs: the query then needs one more slot for them."""
    discovers_ahead: bool = True
    """True if ``discover`` is also called while all readers are busy, so that no reader waits for a long discovery.

    False if ``discover`` is called only when a reader requests a split. Use it if a split ends at the end of the input
    at its discovery: a split that is discovered early would not have the rows that arrive until a reader requests it.
    """
    keeps_files: bool = False
    """True if the source keeps files at the checkpoint location, which must then be a folder."""
    is_clock_driven: bool = False
    """True if new rows become due merely because time passes, so that readers are never caught up.

    ``processAllAvailable`` then waits for the rows that existed when it was called (``SourceReader.refresh_passed``).
    """

    def open(self, location: str, operator_id: str) -> None:  # noqa: B027
        """Open the driver side. Called once, before all other methods.

        A source with ``keeps_files`` may keep files below ``<location>/lane/<operator_id>``.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the description in progress reports, as Spark writes it: ``FileStreamSource[file:/in]``."""

    @abstractmethod
    def discover(self, state: Plain, parallelism: int) -> Discovery:
        """Discover the splits that are new since ``state``, which is None at the first call.

        May block. Called on a separate thread, one call at a time. Must be repeatable: if the result of a call is lost,
        the next call gets the same state again.
        """

    @abstractmethod
    def create_reader(self) -> SourceReader:
        """Create the reader of one subtask. Called in its slot."""

    def freeze(self) -> None:
        """End the input with the input that exists now.

        ``discover`` sets ``finished`` in its result when it has returned all of that input. Called on the thread of
        ``discover``, between two of its calls, once per generation. May block. It is called again after a recovery, so
        input that arrived before the recovery may be included.

        Raises:
            NotSupported: see ``check_freezable``.
        """
        self.check_freezable()

    def check_freezable(self) -> None:
        """Check that the source can be frozen. Called before any source of the query is frozen; must not block.

        Raises:
            NotSupported: the source does not override ``freeze``, or cannot be frozen for another reason.
        """
        if type(self).freeze is Source.freeze:
            raise NotSupported(
                f"{self.describe()} cannot tell what is there now from what comes later: it is read until the query is "
                "stopped, without trigger(availableNow=True), trigger(once=True) or stop(drain=True)"
            )

    def removes_input(self) -> str:
        """Return why reading takes input away from other readers, and the remedy; empty if it does not.

        Example: ``cleanSource`` removes files that were read.
        """
        return ""

    def latest_offset(self) -> Plain:
        """Return the end of the input that the last discovery saw, for progress reports; None if unknown.

        Called on any thread.
        """
        return None

    def offset_of(self, splits: Sequence[Split]) -> Plain:
        """Return the offset for progress reports, in the form of Spark's own source; None if there is no such form.

        Called on any thread.

        Args:
            splits: all unfinished splits of this source.
        """
        return None

    def adopt_state(self, state: Plain) -> Plain:
        """Convert the discovery state of another query's snapshot for this query, which starts from that snapshot.

        The result must not contain actions on the input that only the other query may perform, such as files to clean.
        """
        return state

    def committed(self, state: Plain) -> None:  # noqa: B027
        """Release input. A complete snapshot covers all splits up to ``state``, so none of them is read again."""

    def close(self) -> None:  # noqa: B027
        """Release resources of the driver side. Called once, when the query ends."""


class SourceReader(ABC):
    """Reader of one subtask. Reads its splits in the order in which they were added.

    Owned by the subtask's thread. A method must not block longer than reading one batch of local data takes. If the
    input may block, the reader must read it on a separate thread and poll a bounded queue.
    """

    reads_splits_concurrently: bool = False
    """True if the reader reads all its splits at the same time. It then gets further splits while it reads."""
    interleaves_splits: bool = False
    """True if no split of the reader must wait until another one ends. Implied by ``reads_splits_concurrently``."""
    batch_bytes: int = BATCH_BYTES
    """Limit in bytes for the next ``poll``. A single row may exceed it.

    The caller sets it to limit the time for processing one batch. Readers of small rows may ignore it.
    """

    def open(self, subtask: int, parallelism: int) -> None:  # noqa: B027
        """Open the reader. Called once, before all other methods."""

    @abstractmethod
    def add_split(self, split: Split) -> None:
        """Add a split, which is read from its position."""

    @abstractmethod
    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        """Return the next batch of 1 to ``max_rows`` rows; None if there is none now.

        A position moves past a row exactly when the row is returned. ``now_ms`` is wall-clock time.
        """

    @abstractmethod
    def snapshot(self) -> Sequence[Split]:
        """Return the unfinished splits with their positions, in reading order."""

    def caught_up(self) -> bool:
        """Return True if all splits of the reader are endless and have no rows to read now.

        Such a reader is idle, like a reader without splits. ``processAllAvailable`` waits for this. Readers of bounded
        splits return False.
        """
        return False

    def lags(self) -> Sequence[int]:
        """Return the lag of each endless split: the number of existing rows that ``poll`` has not returned yet.

        Splits whose lag is unknown are left out. Called often, for metrics, so it must not call the external system.
        """
        return ()

    def refresh(self) -> None:  # noqa: B027
        """Ask the external system for new input. ``caught_up`` is False until the system answers that there is none.

        Only the answer to a request that began after this call counts. Readers of bounded splits need not implement it,
        nor readers whose ``poll`` always asks.
        """

    def refresh_passed(self) -> bool:
        """Return True if ``poll`` has returned every row that existed at the last ``refresh``.

        Only readers of sources with ``is_clock_driven`` override it.
        """
        return self.caught_up()

    def begin_frontier(self) -> None:  # noqa: B027
        """Record a frontier: the input that exists now in the splits of this reader.

        The reader must request the frontier from the external system after this call. A later call replaces the
        frontier. Readers of bounded splits need not implement it.
        """

    def frontier_passed(self) -> bool | None:
        """Return True if ``poll`` has returned every row up to the frontier.

        Return False while the frontier is unknown. Return None for bounded splits: their frontier is the splits that
        the reader had at ``begin_frontier``.
        """
        return None

    def committed(self, splits: Sequence[Split]) -> None:  # noqa: B027
        """Release input. A complete snapshot has these splits, so no row before their positions is read again."""

    def freeze(self) -> None:  # noqa: B027
        """End endless splits with the input that exists now, including splits that are added later.

        ``caught_up`` becomes True when ``poll`` has returned all of that input, and then stays True. The splits stay in
        ``snapshot``, at the positions from which a later run continues. Called at most once, between any two other
        calls. Readers of bounded splits need not implement it.
        """

    def epoch_ended(self) -> None:  # noqa: B027
        """End the epoch of the rows that ``poll`` has returned so far. Limits per epoch start again."""

    def wake_after_ms(self) -> int:
        """Return the delay in milliseconds between a ``poll`` that returned None and the next one."""
        return 10

    def close(self) -> None:  # noqa: B027
        """Release files and threads. Called once, also after a failure."""


@dataclass(frozen=True)
class FenceOpener:
    """Driver that takes over an output from all other drivers; see ``docs/fencing.md``.

    Attributes:
        query_id: id of the driver's query.
        position: the driver's newest entry in the log of its location.
        location: path of that location, for messages.
        contains: returns True if the location's log has an entry and the driver continues from it or from a later one.
        check_owned: raises Fenced if the driver no longer owns that log.
        token: returns a new random string of 32 hex digits.
        over: names of positions of other locations that wrote the output. The user has decided that this location takes
            over the output nevertheless.
        has_snapshot: True if there is a snapshot to which this location can be rolled back.
        left_at: the larger of two entry numbers: that of the entry with which the location last dropped a snapshot from
            its lineage, and that of the entry below which the location will soon forget positions. A copy may still
            have the dropped snapshot and commit an epoch that it covers. So a driver that finds a lower recorded
            position must record its own position at once.
    """

    query_id: str
    position: LogPosition
    location: str
    contains: Callable[[LogPosition], bool]
    check_owned: Callable[[], None]
    token: Callable[[], str]
    over: Collection[str] = ()
    has_snapshot: bool = True
    left_at: int = 0


@dataclass(frozen=True)
class SinkContext:
    """Context of a sink writer.

    Attributes:
        generation: number of the generation. Names of staged data contain it, so that data of fenced generations can be
            recognized.
        attempt_token: random hex string, new for each generation and slot.
        first_epoch: lowest epoch of this generation; epochs of earlier generations are lower.
        fence: the return value of ``SinkCommitter.fence``.
        operator_id: id of the sink.
    """

    query_id: str
    generation: int
    subtask: int
    parallelism: int
    attempt_token: str
    first_epoch: int = 1
    fence: str = ""
    operator_id: str = ""


class SinkWriter(ABC):
    """Writer of one subtask, which stages rows in the current epoch. Owned by the subtask's thread."""

    def open(self, context: SinkContext) -> None:  # noqa: B027
        """Open the writer. Called once, before all other methods."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage one non-empty batch."""

    def replace(self) -> None:  # noqa: B027
        """Mark the rows of this epoch as the complete result (complete mode). Called before ``prepare``.

        A sink that supports complete mode returns a message from ``prepare`` even if the result is empty.
        """

    @abstractmethod
    def prepare(self, epoch: int) -> bytes | None:
        """End the epoch and make everything written since the last call durable.

        Returns:
            A message, which is stored in the snapshot and passed to the committer; None if the epoch is empty. Penstock
            never unpickles the message.
        """

    def close(self) -> None:  # noqa: B027
        """Release resources. Called once, also after a failure. Must not remove data that a message names."""


Committing = Callable[[EpochCommit], AbstractContextManager[object]]
"""Context of a commit, entered on the thread of the commit."""


class SinkCommitter(ABC):
    """Driver side of a sink, which makes epochs visible.

    ``commit`` is called for epochs in ascending order, one at a time, on a thread that may block. After a crash it is
    called again for the last epochs: the implementation makes each epoch visible exactly once.
    """

    def open(self, query_id: str) -> None:  # noqa: B027
        """Open the output. Called once per driver, before the first generation.

        The implementation refuses an output that it cannot write exactly once.
        """

    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:  # noqa: B027
        """Check a pending epoch that an earlier run staged. Change nothing.

        Called once per such epoch, before ``open`` and before anything of the query runs.

        Args:
            permit: as for ``commit``; ``batch`` is not known yet.
            same_columns: the sink still gets the same columns as in the run that took the snapshot.

        Raises:
            PenstockError: this sink can never deliver the epoch. The message has the reason only; the caller adds the
                query, the output and the remedies.
        """

    def check_fence(self, opener: FenceOpener) -> bool:
        """Check that the location contains the position that is recorded at the output. Change nothing.

        ``fence`` checks it again. Called after ``open``, before the driver writes to its location's log.

        Returns:
            True if the location contains it; False only if ``opener.over`` has this position.

        Raises:
            SinkError: the location is older than the output, or has diverged from it.
        """
        return True

    def written_from(self) -> str:
        """Return the path of the location that committed to the output last; empty if it is not stored.

        The path is a hint for messages. Called after ``open``.
        """
        return ""

    def fence(self, opener: FenceOpener) -> str:
        """Take over the output from all other drivers: rows that they write there later never become visible.

        Called when a generation begins, on the thread of the log. A driver that already has the output keeps it.

        Returns:
            The value for ``SinkContext.fence``; empty if this output cannot be fenced.

        Raises:
            SinkError: as ``check_fence``.
            Fenced: the driver no longer owns its location.
        """
        return ""

    def check_held(self) -> None:  # noqa: B027
        """Raise SinkFenced if another driver has taken over the output. Called on any thread."""

    def hold(self, position: LogPosition, next_batch: int = 0) -> None:  # noqa: B027
        """Record at the output that it belongs to this location up to a position.

        From then on, only a location that contains the position can take over the output. Called on any thread, before
        an action that cannot be undone: a commit to any output of the query, or a clean-up of input.

        Args:
            position: an entry of this location's log.
            next_batch: exclusive upper bound of the batch ids that sinks may have received.

        Raises:
            SinkFenced: another driver has taken over the output.
            CommitFailed: the output is currently not writable.
        """

    def newest_epoch(self) -> int:
        """Return the highest epoch of this query that is recorded at the output; 0 if there is none.

        Called after ``fence``: new epochs of a restored location must not have numbers that the output already has.
        """
        return 0

    def next_batch(self) -> int:
        """Return a batch id that is higher than all batch ids recorded at the output.

        Called after ``fence``, for the same reason as ``newest_epoch``.
        """
        return 0

    @abstractmethod
    def commit(self, permit: EpochCommit) -> None:
        """Make the epoch visible.

        Raises:
            CommitFailed, CommitInterrupted: the caller repeats the call with the same permit, within the limits of the
                query's options; after that the query fails.
            CommitUnknown: the query fails at once.
            SinkFenced: another driver has the output.
        """

    def commits_logged(self, epoch: int) -> None:  # noqa: B027
        """Remove data that only the commits of epochs up to this one needed.

        The log records these epochs as committed, so no driver that owns the location commits one of them again. Called
        on the thread of ``commit`` with rising epochs, but not for each epoch.
        """

    def abandon(self, generation: int, pending: Collection[bytes] = ()) -> None:  # noqa: B027
        """Remove data that generations up to this one staged, except data that a message in ``pending`` names.

        Until the epochs of the restored snapshot are committed, ``pending`` must have their messages.
        """

    def retraction_problem(self, above: int, below: int) -> str:
        """Return why output of this query cannot be taken back, for a message; empty if it can be.

        Also empty if there is no such output. Changes nothing. Called between ``open`` and the first generation.

        Args:
            above, below: bounds of the epochs, both exclusive.
        """
        return "it cannot take back what it has written"

    def retract(self, above: int, below: int) -> None:
        """Take back all output of this query in the epochs between ``above`` and ``below``, both exclusive.

        None of these epochs is ever committed again. Called after ``retraction_problem`` has returned no problem,
        before anything of this query runs. Called again if the driver dies before the log records the call, so missing
        output is no error. Two drivers may call it at the same time.

        Raises:
            SinkError: the outcome is unknown. The next start repeats the call.
        """
        raise NotSupported(self.retraction_problem(above, below))

    def close(self) -> None:  # noqa: B027
        """Release resources. Called once, when the query ends."""


class Sink(ABC):
    """Factory of a sink's writers and of its committer."""

    keeps_files: bool = False
    """True if the sink stages rows in the directory of ``stage_in``. The checkpoint location must then be a folder."""

    def stage_in(self, directory: str) -> None:  # noqa: B027
        """Set the directory for staged rows. Called on the driver, before writers and committer are created.

        No other sink uses the directory. It is below the checkpoint location, so that the driver and all slots share
        it. It need not exist.
        """

    def target(self) -> str:
        """Return a text that identifies the output. Sinks that write to the same output return the same text.

        Empty if the output is unknown, or no other query can write to it. A digest of the text is stored, so the text
        must not change between releases.
        """
        return ""

    def share(self, query_id: str, origin: str) -> None:  # noqa: B027
        """Let the query ``query_id``, a fork of ``origin``, write to the output of ``origin``.

        Called on the driver before writers and committer are created, at every start for which the user permits this.
        """

    target_is_unknown: bool = False
    """True if the user's code decides where the sink writes, so that Penstock does not know the output."""

    @abstractmethod
    def describe(self) -> str:
        """Return the description in progress reports, as Spark writes it: ``FileSink[/out]``."""

    @abstractmethod
    def create_writer(self) -> SinkWriter: ...

    @abstractmethod
    def create_committer(self) -> SinkCommitter: ...
