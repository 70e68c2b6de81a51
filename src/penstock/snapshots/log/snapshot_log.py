"""Snapshot log: the fence between drivers, and the only record of which snapshots exist.

Entry n is the file ``log/<n, 20 digits>.json``, created exclusively. A driver stops (``Fenced``) if another driver has
created the entry with its next number. The log needs no lease and no clock. Each entry carries a random token. A driver
that cannot tell whether its own write succeeded reads the entry back and compares the token. Readers start from the
last ``summary`` entry. Entries that it covers are removed. A paused driver may create a removed number again, so it
looks for later entries after each append, before it does anything else. ``docs/log-compaction.md`` gives the rules and
the reason for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from penstock.decoding import convert
from penstock.errors import CorruptSnapshot, Fenced
from penstock.grammar import LogToken
from penstock.model.commits import LogPosition
from penstock.model.ids import CheckpointId
from penstock.model.manifest import LARGEST, Ordinal
from penstock.snapshots.format.envelope import open_envelope, seal_envelope
from penstock.snapshots.log.entries import (
    ANY_SUMMARY,
    EMPTY_LOG,
    STEM_DIGITS,
    Entry,
    Forked,
    LogView,
    SnapshotComplete,
    fold,
    summary_of,
    with_writer,
)
from penstock.snapshots.store.parallel_reads import read_in_parallel
from penstock.snapshots.store.store import Store

FOLDER = "log"
SUMMARY_EVERY = 64
"""Number of entries between two summaries, which is about how many entries a reader must read."""
SNAPSHOTS_PER_ENTRY = 20
"""A summary lists all snapshots. So the interval between summaries grows by one entry per this many snapshots."""
UNSUMMARISED_AT_MOST = 1 << 17
"""Maximum number of entries without a summary that a reader accepts. Owners write a summary long before."""
REMOVED_AT_ONCE = 16
"""Covered entries that a driver removes after each collection. On average it appends fewer between collections."""


class Body(msgspec.Struct, frozen=True):
    """Content of one file of the log."""

    seq: Ordinal
    token: LogToken
    entry: Entry


def _is_summary(body: Body) -> bool:
    return isinstance(body.entry, ANY_SUMMARY)


def entry_path(seq: int) -> str:
    return f"{FOLDER}/{seq:020d}.json"


def entry_number(path: str) -> int:
    """Return the number of an entry. Raises CorruptSnapshot for another file."""
    name = path.removeprefix(f"{FOLDER}/").removesuffix(".json")
    if not (name.isascii() and name.isdigit() and len(name) == 20 and int(name) <= LARGEST):
        raise CorruptSnapshot(f"{path} does not belong into a log")
    return int(name)


def _no_token() -> str:
    raise AssertionError("this log is read-only")


class SnapshotLog:
    """Log of one location, as one process has read it.

    Args:
        store: the location.
        token: returns 32 random hex digits per call. Without it the log is read-only.
        view: earlier view of this log, from which reading continues.
        summary_every: minimum number of entries that a summary covers.
    """

    def __init__(
        self,
        store: Store,
        token: Callable[[], str] = _no_token,
        view: LogView = EMPTY_LOG,
        *,
        summary_every: int = SUMMARY_EVERY,
    ) -> None:
        self._store = store
        self._token = token
        self._view = view
        self._summary_every = summary_every
        self._stem = ""
        self._removable: list[str] = []
        self._removable_before = 0
        self._positions: tuple[tuple[CheckpointId, LogPosition], ...] = ()
        self._newest = LogPosition(0, "")

    @property
    def view(self) -> LogView:
        """The log as this object last read it or appended to it."""
        return self._view

    def refresh(self) -> LogView:
        """Read the entries appended since the last call. Raises CorruptSnapshot; the message names the entry."""
        bodies: list[Body] = []
        newest = self._view.next_seq - 1
        # Repeat until nothing is new, because entries that were read may be removed meanwhile.
        while paths := self._above(newest):
            later = entry_number(paths[-1])
            try:
                read = self._read_back_to_summary(later, newest)
            except CorruptSnapshot:
                if not self._above(later):
                    raise
                continue  # A later summary may cover the unreadable entry.
            bodies = read if _is_summary(read[0]) else [*bodies, *read]
            newest = later
        if bodies:
            self._apply(bodies)
        return self._view

    def _apply(self, bodies: Sequence[Body]) -> None:
        view = replace(self._view, next_seq=bodies[0].seq) if _is_summary(bodies[0]) else self._view
        for body in bodies:
            try:
                view = with_writer(fold(view, body.entry), LogPosition(body.seq, body.token))
            except ValueError as error:
                raise CorruptSnapshot(f"{entry_path(body.seq)}: {error}") from error
        for body in bodies:
            self._record_position(body)
        self._view = view

    def _above(self, seq: int) -> list[str]:
        """Return the paths of the entries above an entry that was read.

        The listing of a folder is not atomic. If it takes long, it may miss later entries while all entries that it
        could have found are removed. The entry ``seq`` is removed before those, so if it is missing, the folder is
        listed again.
        """
        path = entry_path(seq) if seq else ""
        paths = self._store.list(FOLDER, after=path)
        if not paths and seq and not self._store.exists(path):
            paths = self._store.list(FOLDER, after=path)
        return paths

    def append(self, entry: Entry) -> LogView:
        """Append an entry durably, with the number after the newest known one.

        Raises:
            Fenced: another driver has written this number or a later one. This driver must stop.
            OSError: the entry is not in the log, or its state is unknown. If it is unknown, the next append may find
                the entry and mistake it for another driver's. This driver then stops, and the next one reads the log.
            FileNotFoundError: the log was deleted.
        """
        if text := self.deletion_text():
            raise FileNotFoundError(text)  # An entry would begin a log that lacks all earlier entries.
        seq = self._view.next_seq
        body = Body(seq, self._next_token(), entry)
        after = with_writer(fold(self._view, entry), LogPosition(seq, body.token))
        path = entry_path(seq)
        try:
            created = self._store.create_if_absent(path, seal_envelope(msgspec.to_builtins(body)))
        except OSError:
            # The outcome is unknown, so check whether the entry exists. If it is absent now, it may still appear later.
            if not self._store.exists(path):
                raise
            created = False
        if not created and ((found := self._read_if_there(seq)) is None or found.token != body.token):
            raise self._fenced(seq)
        self._check_newest(seq)
        self._record_position(body)
        self._view = after
        return after

    def _next_token(self) -> str:
        token = self._token()
        self._stem = self._stem or token[:STEM_DIGITS]
        return self._stem + token[STEM_DIGITS:]

    def _check_newest(self, seq: int) -> None:
        """Raise Fenced if another driver has appended after an entry.

        The check is needed because the number may have belonged to another driver's entry that was removed.
        """
        if self._above(seq):
            raise self._fenced(seq)

    def deletion_text(self) -> str:
        """Return a description of the missing entry if the log that this object has read was deleted; otherwise "".

        Raises:
            OSError: the store fails.
        """
        seq = self._view.next_seq - 1
        if not seq or self._store.exists(entry_path(seq)) or self._above(seq):
            return ""  # If there are later entries, another driver has removed this one.
        return (
            f"the checkpoint location {self._store.root} is gone while the query runs: {entry_path(seq)} is missing, "
            "so its files were removed"
        )

    def check_owned(self) -> None:
        """Raise Fenced if another driver has appended an entry. This driver must then stop."""
        self._check_newest(self._view.next_seq - 1)

    @property
    def position(self) -> LogPosition:
        """Position of the newest entry."""
        return self._newest

    def position_of(self, epoch: CheckpointId) -> LogPosition:
        """Return the position of the entry that completed the snapshot that covers an epoch.

        If this object has not read that entry, return a later position. May be called on any thread.
        """
        covering = [position for checkpoint, position in self._positions if checkpoint >= epoch]
        return covering[0] if covering else self._newest

    def contains(self, position: LogPosition) -> bool:
        """Return True if the log has this entry. Then it is the log of the original entry, or a later copy of that log.

        Raises:
            CorruptSnapshot: the entry cannot be decoded. The message names it.
        """
        if self._view.is_covered(position.seq):
            return self._view.was_written(position)
        body = self._read_if_there(position.seq)
        if body is not None and body.token == position.token:
            return True
        now = SnapshotLog(self._store).refresh()  # Another driver may have removed it meanwhile.
        return now.is_covered(position.seq) and now.was_written(position)

    def may_be_later(self, position: LogPosition, checkpoint: CheckpointId) -> bool:
        """Return True if a position of this log may belong to a snapshot later than the existing ``checkpoint``."""
        record = self._view.snapshot(checkpoint)
        if record is not None and position.seq <= record.logged_at:
            return False
        body = None if self._view.is_covered(position.seq) else self._read_if_there(position.seq)
        if body is None:
            return True
        return isinstance(body.entry, SnapshotComplete) and body.entry.checkpoint > checkpoint

    def _record_position(self, body: Body) -> None:
        self._newest = LogPosition(body.seq, body.token)
        if isinstance(body.entry, SnapshotComplete):
            self._positions = (*self._positions, (body.entry.checkpoint, self._newest))[-SUMMARY_EVERY:]

    def fork_entry(self) -> Forked | None:
        """Return the first entry if the location began as a fork; otherwise None.

        Raises:
            CorruptSnapshot: the entry is missing or damaged. The message names it.
        """
        entry = self._read(1).entry
        return entry if isinstance(entry, Forked) else None

    def summarise(self) -> LogView:
        """Append a summary if the last one is many entries back, or if an earlier release could still use this log.

        An earlier release would not check for later entries after an append. The caller must own the log.
        """
        view = self._view
        every = max(self._summary_every, len(view.snapshots) // SNAPSHOTS_PER_ENTRY)
        if view.head and view.next_seq - view.last_summary <= every:
            return view
        return self.append(summary_of(view))

    def remove_covered(self, at_most: int | None = REMOVED_AT_ONCE) -> None:
        """Remove covered entries, the lowest ones first. Harmless if the caller no longer owns the log.

        Args:
            at_most: maximum number of entries; None for all.

        Raises:
            OSError: the store fails. The remaining entries are removed later.
        """
        if not self._removable and self._removable_before < self._view.kept_from:
            self._removable_before = self._view.kept_from
            self._removable = self._covered_paths()
        for path in self._removable[:at_most]:  # In ascending order: when an entry is removed, no lower one may remain.
            self._store.delete(path)
        del self._removable[:at_most]

    def _covered_paths(self) -> list[str]:
        """Return the paths of all covered entries that exist, including stray ones, in ascending order."""
        paths = self._store.list(FOLDER, after=entry_path(self._view.head))
        return [path for path in paths if self._view.is_covered(entry_number(path))]

    def _read_back_to_summary(self, newest: int, known: int) -> list[Body]:
        bodies: list[Body] = []
        left = range(newest, known, -1)
        while left:
            for body in read_in_parallel(self._store, self._read_or_error, left[: self._store.parallel_calls]):
                if isinstance(body, CorruptSnapshot):
                    raise body
                bodies.append(body)
                if _is_summary(body):
                    return bodies[::-1]
            if len(bodies) > UNSUMMARISED_AT_MOST:
                raise CorruptSnapshot(f"{FOLDER}/ has no summary among its last {UNSUMMARISED_AT_MOST} entries")
            left = left[self._store.parallel_calls :]
        return bodies[::-1]

    def _read_or_error(self, seq: int) -> Body | CorruptSnapshot:
        """Return an error instead of raising it: an unreadable entry before a summary does not matter."""
        try:
            return self._read(seq)
        except CorruptSnapshot as error:
            return error

    def _read(self, seq: int) -> Body:
        body = self._read_if_there(seq)
        if body is None:
            raise CorruptSnapshot(f"{entry_path(seq)} is missing, though later log entries exist")
        return body

    def _read_if_there(self, seq: int) -> Body | None:
        path = entry_path(seq)
        try:
            body = convert(open_envelope(self._store.read(path), path), Body)
        except FileNotFoundError:
            return None
        except msgspec.ValidationError as error:
            raise CorruptSnapshot(f"{path} is not a log entry: {error}") from error
        if body.seq != seq:
            raise CorruptSnapshot(f"{path} holds entry {body.seq}: it was copied or renamed")
        return body

    @staticmethod
    def _fenced(seq: int) -> Fenced:
        return Fenced(f"another driver has taken over this checkpoint location (log entry {seq} is not ours)")
