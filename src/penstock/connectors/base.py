"""The contracts of sources and sinks.

A *source* is a discovery function on the driver and readers in the slots; what travels between them is a Split. A
*sink* is a writer per subtask that stages an epoch, and a committer on the driver that makes it visible.
Sources, sinks and readers are serialised with cloudpickle into the Spark task; splits, positions, discovery states
and commit messages are stored in snapshots and therefore plain JSON data (or bytes, for messages).
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
"""The most bytes that ``SourceReader.poll`` should return before more is known of the query."""


class Source(ABC):
    """Driver side and factory of a source."""

    schema: pa.Schema

    @property
    def kind(self) -> str:
        """Who understands its states and splits: a restart with a source of another kind is refused. It is stored, so
        it must not change."""
        return type(self).__name__

    runs_spark_jobs: bool = False
    """``discover`` runs Spark jobs: the query needs a free slot besides its own."""
    looks_ahead: bool = True
    """``discover`` is called while all readers are busy, too, so that none waits for a long look. Otherwise not before
    one asks for more: of a split that ends where the input ended when it was found, rows would be old when it is read.
    """
    keeps_files: bool = False
    """It keeps files at the checkpoint location, which must be a folder then."""
    has_always_more: bool = False
    """New rows come by the clock, so its readers are never caught up. ``processAllAvailable`` waits for the rows that
    existed when it was called (``SourceReader.look_passed``), and not until there is nothing to read."""

    def open(self, location: str, operator_id: str) -> None:  # noqa: B027
        """Called once on the driver, before anything else. A source may keep files below ``<location>/lane/<id>``."""

    @abstractmethod
    def describe(self) -> str:
        """As in Spark's progress, for example ``FileStreamSource[file:/in]``."""

    @abstractmethod
    def discover(self, state: Plain, parallelism: int) -> Discovery:
        """Look for new splits since ``state`` (None at the very first call). May block; called on a thread of its own,
        one call at a time. Must be repeatable: the state of a lost call is given again.
        """

    @abstractmethod
    def create_reader(self) -> SourceReader:
        """A reader for one subtask, in its slot."""

    def freeze(self) -> None:
        """Nothing that appears from now on is to be found; once everything that is there now was found, ``discover``
        says ``finished``. Called as ``discover`` is, between two of its calls, once per Generation: behind a recovery
        what came meanwhile may be found as well. May block. A source that overrides it can always be frozen.

        Raises:
            NotSupported: see ``check_freezable``.
        """
        self.check_freezable()

    def check_freezable(self) -> None:
        """Called before any source of the query is frozen; must not block.

        Raises:
            NotSupported: this source cannot be frozen, as one cannot that does not override ``freeze``.
        """
        if type(self).freeze is Source.freeze:
            raise NotSupported(
                f"{self.describe()} cannot tell what is there now from what comes later: it is read until the query is "
                "stopped, without trigger(availableNow=True), trigger(once=True) or stop(drain=True)"
            )

    def takes_away(self) -> str:
        """What another reader of the same input misses once this one has read it, for example files that are cleaned
        away, and what keeps it from it; empty if nothing."""
        return ""

    def latest_offset(self) -> Plain:
        """What the newest look saw of what there is to read, for progress; None if unknown. On any thread."""
        return None

    def offset_of(self, splits: Sequence[Split]) -> Plain:
        """Where a query stands whose unfinished splits of this source, all of them, are these: in the form of Spark's
        own source, for progress. None if there is no such form. On any thread."""
        return None

    def of_another_query(self, state: Plain) -> Plain:
        """Return the state of another query's snapshot for this query, which starts from that snapshot.

        It must not have actions on the input that only the other query may perform, such as files to clean.
        """
        return state

    def committed(self, state: Plain) -> None:  # noqa: B027
        """In a complete snapshot every split found up to ``state`` is wholly read: nothing before it is read again."""

    def close(self) -> None:  # noqa: B027
        """Called once when the query ends, on the driver."""


class SourceReader(ABC):
    """Reads its splits in the order they were added.

    Owned by the subtask's thread; must not block longer than one batch read from local data takes: a reader whose
    input may block runs a thread of its own and polls a bounded queue.
    """

    side_by_side: bool = False
    """Reads all its splits at the same time: it is given further ones while it reads. Otherwise one after the other."""
    takes_turns: bool = False
    """Of several splits that it holds, all the same, none waits for another one's end; implied by ``side_by_side``."""
    batch_bytes: int = BATCH_BYTES
    """The most bytes that the next ``poll`` should return, if the rows can be large; a single row may have more. Set
    by the caller: what comes after the rows of one batch must not take long."""

    def open(self, subtask: int, parallelism: int) -> None:  # noqa: B027
        """Called once before anything else."""

    @abstractmethod
    def add_split(self, split: Split) -> None:
        """Take over a split, at its position."""

    @abstractmethod
    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        """The next non-empty batch of at most ``max_rows`` rows, or None if there is none now (call again later).

        Positions move past a row exactly when it is returned. ``now_ms`` is wall-clock time.
        """

    @abstractmethod
    def snapshot(self) -> Sequence[Split]:
        """The unfinished splits with their positions, in reading order. Finished splits are gone."""

    def caught_up(self) -> bool:
        """Every split this reader holds is an endless one with nothing to read now: as idle as a reader without splits.

        For ``processAllAvailable`` and the like. False for readers whose splits end.
        """
        return False

    def behind(self) -> Sequence[int]:
        """Of each endless split of which that is known: how many rows are there that ``poll`` has not returned yet. For
        figures: called often, and asks nobody."""
        return ()

    def look(self) -> None:  # noqa: B027
        """``caught_up`` is False from now on, until a look at the outside that began after this call found nothing.
        Nothing to do for readers whose splits end, and where every ``poll`` is such a look.
        """

    def look_passed(self) -> bool:
        """Return True if ``poll`` has returned every row that existed at the last ``look``.

        Only readers of a source that ``has_always_more`` implement it; others have passed it when they are caught up.
        """
        return self.caught_up()

    def begin_frontier(self) -> None:  # noqa: B027
        """Record a frontier: the input that exists now in the splits of this reader.

        The reader must ask the external system for it after this call. A later call replaces the frontier. Readers of
        bounded splits need not implement it.
        """

    def frontier_passed(self) -> bool | None:
        """Return True if ``poll`` has returned every row up to the frontier; False while the frontier is not known yet.

        Return None for bounded splits: then the frontier is the splits that the reader held.
        """
        return None

    def committed(self, splits: Sequence[Split]) -> None:  # noqa: B027
        """A complete snapshot holds these splits of this reader: nothing before their positions is read again."""

    def freeze(self) -> None:  # noqa: B027
        """Endless splits, those that are added later too, are read up to what is there now, and no further in this run:
        then, and not before, ``caught_up`` for good. They stay in ``snapshot`` where a later run goes on. Called at
        most once, between any two other calls. Nothing to do for readers whose splits end.
        """

    def epoch_ended(self) -> None:  # noqa: B027
        """What was returned by ``poll`` so far belongs to an epoch that has ended: for limits by epoch."""

    def wake_after_ms(self) -> int:
        """After a ``poll`` that returned None: how long until the next is worth while."""
        return 10

    def close(self) -> None:  # noqa: B027
        """Release files and threads; called once, also after a failure."""


@dataclass(frozen=True)
class FenceOpener:
    """The driver that takes over an output from all other drivers; see ``docs/fencing.md``.

    Attributes:
        query_id: the id of its query.
        position: its newest entry in its location's log.
        location: the path of that location, for messages.
        contains: returns True if the location's log has an entry and the driver continues from it or from a later one.
        check_owned: raises Fenced if the driver no longer owns that log.
        token: returns a new random string of 32 hex digits.
        over: names of positions of other locations: the user has chosen this location although they wrote the output.
        has_snapshot: True if there is a snapshot to which this location can be rolled back.
        left_at: number of the entry with which the location last dropped a snapshot from its lineage. A copy may have
            that snapshot and commit an epoch that it covers, so this driver must record at once that it does not.
            Or number of the entry below which the location forgets positions before long, if that is larger.
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
    """``generation`` marks staged data, so that what a fenced attempt left can be told apart. ``attempt_token`` is a
    random hex string, new per Generation and slot. ``first_epoch``: epochs of this Generation are not below it, and
    those of earlier ones are. ``fence``: what ``SinkCommitter.fence`` returned. ``operator_id``: of the sink."""

    query_id: str
    generation: int
    subtask: int
    parallelism: int
    attempt_token: str
    first_epoch: int = 1
    fence: str = ""
    operator_id: str = ""


class SinkWriter(ABC):
    """Stages rows in the current epoch. Owned by the subtask's thread."""

    def open(self, context: SinkContext) -> None:  # noqa: B027
        """Called once before anything else."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage one non-empty batch."""

    def replace(self) -> None:  # noqa: B027
        """Complete mode: what was written in this epoch is a whole result, even if it is nothing at all: then
        ``prepare`` has a message for it, in a sink that takes this mode. Called before ``prepare``."""

    @abstractmethod
    def prepare(self, epoch: int) -> bytes | None:
        """End the epoch: everything written since the last call is durable when this returns. The returned message is
        stored in the snapshot and handed to the committer; None if the epoch is empty. Never unpickled by Penstock.
        """

    def close(self) -> None:  # noqa: B027
        """Release resources; called once, also after a failure. Must not remove anything staged under a message."""


Committing = Callable[[EpochCommit], AbstractContextManager[object]]
"""Context of a commit, entered on the thread of the commit."""


class SinkCommitter(ABC):
    """Driver side of a sink. ``commit`` is called for epochs in ascending order, one at a time, on a thread that may
    block. After a crash the last epochs are handed over again: the implementation makes each visible exactly once.
    """

    def open(self, query_id: str) -> None:  # noqa: B027
        """Called once per driver, before the first Generation. Refuses a target that cannot be written exactly once."""

    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:  # noqa: B027
        """Check a pending epoch that an earlier run staged. Change nothing.

        Called once per such epoch, before ``open`` and before anything of the query runs.

        Args:
            permit: as for ``commit``; ``batch`` is not known yet.
            same_columns: the sink still gets the same columns as in the run that took the snapshot.

        Raises:
            PenstockError: this sink can never deliver the epoch. The text has the reason only; the caller adds query,
                output and ways out.
        """

    def check_fence(self, opener: FenceOpener) -> bool:
        """Check that the location knows of all output, as far as possible without a change.

        Called after ``open``, before the driver writes to its location's log.

        Returns:
            True if it does. False only for an opener with this position in ``over``.

        Raises:
            SinkError: the location is older than the output, or has diverged from it.
        """
        return True

    def written_from(self) -> str:
        """Return the path of the location that committed to the output last; empty if it is not stored.

        It is a hint for messages. Called after ``open``.
        """
        return ""

    def fence(self, opener: FenceOpener) -> str:
        """Take over the output from all other drivers: nothing that they write there becomes visible any more.

        Called when a Generation begins, on the thread of the log. A driver that has the output already keeps it.

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

        No location that does not contain the position can take over the output from then on. Called on any thread,
        before an action that cannot be undone: a commit to any output of the query, or a clean-up of input.

        Args:
            position: an entry of this location's log.
            next_batch: sinks may have got lower batch ids.

        Raises:
            SinkFenced: another driver has taken over the output.
            CommitFailed: the output cannot be written to now.
        """

    def newest_epoch(self) -> int:
        """Return the highest epoch of this query that is recorded at the output; 0 if there is none.

        Called after ``fence``: new epochs of a restored location must not have numbers that are used at the output.
        """
        return 0

    def next_batch(self) -> int:
        """Return a batch id above all that were handed over, as far as the output has it recorded.

        Called after ``fence``, for the same reason.
        """
        return 0

    @abstractmethod
    def commit(self, permit: EpochCommit) -> None:
        """Make the epoch visible.

        Raises:
            CommitFailed, CommitInterrupted: the call is repeated with the same permit, within the limits of the query's
                options; then the query fails.
            CommitUnknown: the query fails at once.
            SinkFenced: another driver has the output.
        """

    def settled(self, epoch: int) -> None:  # noqa: B027
        """The log says that every epoch up to this one is committed: no driver that owns the location hands one of them
        over again. Called on the thread of ``commit`` with rising epochs, now and then: what a commit needed may go.
        """

    def abandon(self, generation: int, pending: Collection[bytes] = ()) -> None:  # noqa: B027
        """Nothing staged by Generations up to this one is needed any more, but what a message in ``pending`` names.

        Call it once the epochs of the restored snapshot are committed; otherwise hand their messages over.
        """

    def irrevocable(self, above: int, below: int) -> str:
        """Why this query's output of the epochs between the two, both exclusive, cannot be taken back, for a message;
        empty if it can be, or if there is none. Changes nothing. Called between ``open`` and the first Generation.
        """
        return "it cannot take back what it has written"

    def retract(self, above: int, below: int) -> None:
        """Take back all output of this query in the epochs between the two, both exclusive; none of them will ever be
        committed again. Called after ``irrevocable`` had nothing against it, before anything of this query runs, and
        again if a driver dies before that is in the log: what is gone already is no error. Two drivers may do it at the
        same time.

        Raises:
            SinkError: the outcome is not known; it is tried again at the next start.
        """
        raise NotSupported(self.irrevocable(above, below))

    def close(self) -> None:  # noqa: B027
        """Called once when the query ends."""


class Sink(ABC):
    """Factory of writers and the committer."""

    keeps_files: bool = False
    """It stages rows in the directory of ``stage_in``: the checkpoint location must be a folder then."""

    def stage_in(self, directory: str) -> None:  # noqa: B027
        """Called on the driver before anything is created: a directory of this sink alone, below the checkpoint
        location, so that all slots and the driver share it. It need not exist."""

    def target(self) -> str:
        """What it writes to, for comparison with what other queries write to; empty if that is not known, or nobody
        else's. It is stored as a digest, so the text must not change from release to release."""
        return ""

    def share(self, query_id: str, origin: str) -> None:  # noqa: B027
        """The user allows the query ``query_id``, a fork of ``origin``, to write to where that one writes. Called on
        the driver before anything is created, at every start for which it is allowed."""

    target_is_unknown: bool = False
    """True if the user's code decides where the sink writes to, so that Penstock does not know it."""

    @abstractmethod
    def describe(self) -> str:
        """As in Spark's progress, for example ``FileSink[/out]``."""

    @abstractmethod
    def create_writer(self) -> SinkWriter: ...

    @abstractmethod
    def create_committer(self) -> SinkCommitter: ...
