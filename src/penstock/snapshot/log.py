"""The one log: the fence between drivers and the only truth about which snapshots exist.

Entry n is the file ``log/<n, 20 digits>.json``, created exclusively. A driver that loses its next number to another
one stops (``Fenced``): no lease, no clock. Each entry carries a random token, so that a driver that cannot tell
whether its own write succeeded reads the entry back and knows. Entries are never removed: a paused driver could
otherwise create a removed number anew and believe itself the owner. Readers start from the last ``summary`` entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from penstock.connectors.base import LogPosition
from penstock.decoding import convert
from penstock.errors import CorruptSnapshot, Fenced
from penstock.grammar import LogToken
from penstock.ids import CheckpointId
from penstock.snapshot.envelope import open_envelope, seal_envelope
from penstock.snapshot.log_entries import (
    NOTHING_LOGGED,
    Entry,
    Forked,
    LogView,
    SnapshotComplete,
    Summary,
    SummaryOfVersion1,
    fold,
)
from penstock.snapshot.model import LARGEST, Ordinal
from penstock.snapshot.store import Store
from penstock.snapshot.together import together

FOLDER = "log"
SUMMARY_EVERY = 64
"""A reader reads at most about this many entries,"""
SNAPSHOTS_PER_ENTRY = 20
"""or one for so many snapshots: a summary names them all, so with many of them it is to be written less often."""
UNSUMMARISED_AT_MOST = 1 << 17
"""Entries without a summary that a reader takes: owners write one long before, and more would take long to add up."""


class Body(msgspec.Struct, frozen=True):
    """Content of one file of the log."""

    seq: Ordinal
    token: LogToken
    entry: Entry


def _is_summary(body: Body) -> bool:
    return isinstance(body.entry, Summary | SummaryOfVersion1)


def entry_path(seq: int) -> str:
    return f"{FOLDER}/{seq:020d}.json"


def _only_reads() -> str:
    raise AssertionError("this log is only read")


class SnapshotLog:
    """One process's view of the log of one location, and its way to append.

    Args:
        store: the location.
        token: a fresh random string per call; without it the log can only be read.
        view: what was read of this log before.
    """

    def __init__(self, store: Store, token: Callable[[], str] = _only_reads, view: LogView = NOTHING_LOGGED) -> None:
        self._store = store
        self._token = token
        self._view = view
        self._positions: tuple[tuple[CheckpointId, LogPosition], ...] = ()
        self._newest = LogPosition(0, "")

    @property
    def view(self) -> LogView:
        """The log as last read or appended to by this object."""
        return self._view

    def refresh(self) -> LogView:
        """Read what was appended since. Raises CorruptSnapshot naming the entry."""
        read = self._view.next_seq - 1
        paths = self._store.list(FOLDER, after=entry_path(read) if read else "")
        newest = self._number(paths[-1]) if paths else 0
        if newest < self._view.next_seq:
            return self._view
        bodies = self._read_back_to_summary(newest)
        view = replace(self._view, next_seq=bodies[0].seq) if _is_summary(bodies[0]) else self._view
        for body in bodies:
            try:
                view = fold(view, body.entry)
            except ValueError as error:
                raise CorruptSnapshot(f"{entry_path(body.seq)}: {error}") from error
            self._passed(body)
        self._view = view
        return view

    def append(self, entry: Entry) -> LogView:
        """Append at the next number this object knows of, durably.

        Raises:
            Fenced: another driver has that number: this one must stop.
            OSError: the entry is not in the log, or the store cannot tell: then the next append may meet it there and
                take it for another driver's. This driver ends then; its successor reads what is true.
        """
        if gone := self.gone():
            raise FileNotFoundError(gone)  # an entry would begin a log without all earlier ones
        seq = self._view.next_seq
        body = Body(seq, self._token(), entry)
        after = fold(self._view, entry)
        path = entry_path(seq)
        try:
            created = self._store.create_if_absent(path, seal_envelope(msgspec.to_builtins(body)))
        except OSError:
            # Unknown outcome: the entry itself tells. If it is absent now, a later append of ours meets it or not.
            if not self._store.exists(path):
                raise
            created = False
        if not created and self._read(seq).token != body.token:
            raise self._fenced(seq)
        self._passed(body)
        self._view = after
        return after

    def gone(self) -> str:
        """Return a description of what is missing if the log that this object has read is deleted; empty otherwise.

        Raises:
            OSError: the store fails.
        """
        last = entry_path(self._view.next_seq - 1)
        if self._view.next_seq == 1 or self._store.exists(last):
            return ""
        return (
            f"the checkpoint location {self._store.root} is gone while the query runs: {last} is missing, so its files "
            "were removed"
        )

    def check_owned(self) -> None:
        """Nobody has appended behind this object's back.

        Raises:
            Fenced: another driver has: this one must stop.
        """
        if self._store.exists(entry_path(self._view.next_seq)):
            raise self._fenced(self._view.next_seq)

    @property
    def position(self) -> LogPosition:
        """The newest entry."""
        return self._newest

    def position_of(self, epoch: CheckpointId) -> LogPosition:
        """Return the position of the entry that completed the snapshot that covers an epoch.

        If that entry was not read, return a later position. May be called on any thread.
        """
        covering = [position for checkpoint, position in self._positions if checkpoint >= epoch]
        return covering[0] if covering else self._newest

    def contains(self, position: LogPosition) -> bool:
        """Return True if the log has this entry: it is the log with the original entry, or a later copy of that log.

        Raises:
            CorruptSnapshot: the entry cannot be decoded. The message names it.
        """
        return self._store.exists(entry_path(position.seq)) and self._read(position.seq).token == position.token

    def snapshot_at(self, position: LogPosition) -> CheckpointId:
        """Return the checkpoint that an entry of this log completed; 0 for other entries."""
        entry = self._read(position.seq).entry
        return entry.checkpoint if isinstance(entry, SnapshotComplete) else 0

    def _passed(self, body: Body) -> None:
        self._newest = LogPosition(body.seq, body.token)
        if isinstance(body.entry, SnapshotComplete):
            self._positions = (*self._positions, (body.entry.checkpoint, self._newest))[-SUMMARY_EVERY:]

    def forked(self) -> Forked | None:
        """How the location began, if it was as a fork. Raises CorruptSnapshot naming the entry."""
        entry = self._read(1).entry
        return entry if isinstance(entry, Forked) else None

    def summarise(self) -> LogView:
        """Append a summary if the last one is many entries back, or if an earlier release could still use this log.

        Such a release would not know of batch ids. The caller owns the log.
        """
        view = self._view
        every = max(SUMMARY_EVERY, len(view.snapshots) // SNAPSHOTS_PER_ENTRY)
        if view.next_seq - view.last_summary <= every and not view.of_version_1:
            return view
        return self.append(
            Summary(
                view.owner,
                view.first_checkpoint,
                view.restored,
                view.committed_epoch,
                view.next_batch,
                view.reserved_until,
                list(view.snapshots),
                view.retract,
                dict(view.counted.batches),
                view.counted.epoch,
                view.planned,
                list(view.over),
                view.left_at,
            )
        )

    def _read_back_to_summary(self, newest: int) -> list[Body]:
        bodies: list[Body] = []
        left = range(newest, self._view.next_seq - 1, -1)
        while left:
            for body in together(self._store, self._read_if_whole, left[: self._store.at_once]):
                if isinstance(body, CorruptSnapshot):
                    raise body
                bodies.append(body)
                if _is_summary(body):
                    return bodies[::-1]
            if len(bodies) > UNSUMMARISED_AT_MOST:
                raise CorruptSnapshot(f"{FOLDER}/ has no summary among its last {UNSUMMARISED_AT_MOST} entries")
            left = left[self._store.at_once :]
        return bodies[::-1]

    def _read_if_whole(self, seq: int) -> Body | CorruptSnapshot:
        """One behind a summary is of no account."""
        try:
            return self._read(seq)
        except CorruptSnapshot as error:
            return error

    def _read(self, seq: int) -> Body:
        path = entry_path(seq)
        try:
            body = convert(open_envelope(self._store.read(path), path), Body)
        except FileNotFoundError:
            raise CorruptSnapshot(f"{path} is missing, though later log entries exist") from None
        except msgspec.ValidationError as error:
            raise CorruptSnapshot(f"{path} is not a log entry: {error}") from error
        if body.seq != seq:
            raise CorruptSnapshot(f"{path} holds entry {body.seq}: it was copied or renamed")
        return body

    @staticmethod
    def _fenced(seq: int) -> Fenced:
        return Fenced(f"another driver has taken over this checkpoint location (log entry {seq} is not ours)")

    @staticmethod
    def _number(path: str) -> int:
        name = path.removeprefix(f"{FOLDER}/").removesuffix(".json")
        if not (name.isascii() and name.isdigit() and len(name) == 20 and int(name) <= LARGEST):
            raise CorruptSnapshot(f"{path} does not belong into a log")
        return int(name)
