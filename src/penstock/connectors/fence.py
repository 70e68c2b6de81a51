"""Fence of an output: decides which driver may make rows visible there. ``docs/fencing.md`` explains each step.

The log of a location fences the drivers of that location. This fence also fences drivers of copies of the location. It
has a log at the output and a work directory, which has all files that may still become visible. The driver that opens
the fence renames the work directory.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.connectors.base import FenceOpener
from penstock.connectors.local_files import create_exclusively, fsync_directory, replace_durably
from penstock.decoding import decode_json
from penstock.errors import SinkError, SinkFenced
from penstock.grammar import FenceToken, FreeText, OriginId, QueryId
from penstock.model.commits import LogPosition
from penstock.model.manifest import Count

ATTEMPTS = 16
"""Limit for the attempts of a driver to open a fence that other drivers open at the same time."""
FIRST = "0" * 32
"""Token of the work directory that exists before the first entry."""
FIRST_TAKEN_AFTER = 3
"""Number of listings after which another driver takes ``FIRST``: the first driver probably died before it took it."""
MAX_ENTRIES_SEARCHED = 1 << 10
"""Number of newest entries that are searched for the last driver with a work directory."""
LOST = "another driver of this query has taken the output over"
_NUMBER = re.compile(r"[0-9]{20}\.json")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_Decoded = TypeVar("_Decoded")


class FenceEntry(msgspec.Struct, frozen=True):
    """Entry of a fence log.

    Attributes:
        token: token of the opener, 32 random hex digits. It is the name of the opener's work directory.
        follows: position of the opener in its location's log.
    """

    token: FenceToken
    query_id: QueryId
    follows: LogPosition


class FenceRecord(msgspec.Struct, frozen=True):
    """Record at the output of the last position whose rows may be visible.

    Attributes:
        position: position in the log of the location that wrote the rows; None before the first commit.
        location: path of that location, for messages only.
        query_id: query of that location; empty if it was not recorded.
        next_batch: exclusive upper bound of the batch ids that the sink may have received.
    """

    position: LogPosition | None = None
    location: FreeText = ""
    query_id: OriginId = ""
    next_batch: Count = 0

    def for_opener(self, opener: FenceOpener) -> FenceRecord:
        """Return this record, or an empty one if another query wrote it: the opener's query has the output now."""
        return self if self.query_id in ("", opener.query_id) else FenceRecord()

    def advanced_to(self, opener: FenceOpener, position: LogPosition, next_batch: int) -> FenceRecord:
        """Return the record after the opener's location has reached a position.

        The location must contain the recorded position. A restarted driver or a copy may commit older epochs again, but
        the recorded position never moves back, because the output has the rows up to it.
        """
        location = opener.location
        if self.position is not None and self.position.seq >= position.seq:
            position, location = self.position, self.location
        return FenceRecord(position, location, opener.query_id, max(self.next_batch, next_batch))

    def after_takeover(self, opener: FenceOpener, output: str) -> FenceRecord:
        """Return the record after a driver has taken over the output.

        If the driver's location overrides the recorded position, or has left entries that copies may have, the record
        gets the opener's position, which no copy of the location has.

        Raises:
            SinkError: see ``Fence.check``.
        """
        recorded = 0 if self.position is None else self.position.seq
        if self.admits(opener, output) and recorded >= opener.left_at:
            return self
        return msgspec.structs.replace(self, position=None).advanced_to(opener, opener.position, 0)

    def admits(self, opener: FenceOpener, output: str) -> bool:
        """Return True if the opener may have the output, see ``Fence.check``."""
        if self.position is None or opener.contains(self.position):
            return True
        if self.position.name not in opener.over:
            raise refused(output, opener, self.position, self.location)
        return False


class FenceStore(ABC):
    """Storage of a fence. All operations are atomic."""

    @abstractmethod
    def newest(self) -> int:
        """Return the number of the newest entry; 0 if there is none."""

    @abstractmethod
    def read(self, number: int) -> bytes:
        """Return an entry. Raise FileNotFoundError if it does not exist."""

    @abstractmethod
    def create(self, number: int, entry: bytes) -> bool:
        """Create an entry durably. Return False if an entry with this number exists."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the tokens with a work directory. A directory that is renamed during the call may be missing."""

    @abstractmethod
    def make_first(self) -> None:
        """Create the work directory ``FIRST``, unless it exists. No other work directory is ever created."""

    @abstractmethod
    def move(self, older: str, token: str) -> None:
        """Rename a work directory. Raise FileNotFoundError if it no longer exists."""

    @abstractmethod
    def recorded(self, token: str) -> bytes | None:
        """Return the last record of any driver in a work directory; None if the record or the directory is missing."""

    @abstractmethod
    def record(self, token: str, committed: bytes) -> None:
        """Replace the record durably. Raise FileNotFoundError if the work directory no longer exists."""


class Fence:
    """Fence of one output, from the view of one driver.

    Args:
        store: storage of the fence.
        output: name of the output, for messages.
        patience_s: pause between two listings while a work directory is being renamed.
    """

    def __init__(self, store: FenceStore, output: str, patience_s: float = 0.05) -> None:
        self._store = store
        self._output = output
        self._patience_s = patience_s
        self._number = 0
        self._token = ""
        self._opener: FenceOpener | None = None
        self._committed = FenceRecord()

    def check(self, opener: FenceOpener) -> bool:
        """Check that the location contains all output. Changes nothing.

        Returns:
            True if the location contains all output; False only for an opener that overrides newer output.

        Raises:
            SinkError: the location does not contain all output. The message has the remedies.
        """
        number = self._store.newest()
        if number < self._number:
            raise SinkError(
                f"{self._output} is not the one that was here before: its fence log is gone. Was it unmounted or "
                "deleted? Bring it back and start the query again"
            )
        held = self._latest(number) if number else None
        return held is None or self._recorded(held).for_opener(opener).admits(opener, self._output)

    def held(self) -> str:
        """Return the token of the work directory that any driver uses; empty if there is none."""
        number = self._store.newest()
        return (self._latest(number) or "") if number else ""

    def written_from(self) -> str:
        """Return the path of the location that committed last; empty if no location has committed."""
        held = self.held()
        return self._recorded(held).location if held else ""

    def open(self, opener: FenceOpener) -> str:
        """Take over the output from all other drivers, unless this driver already has it.

        Returns:
            The token of this driver's work directory.

        Raises:
            Fenced: the driver no longer owns its location.
            SinkError: see ``check``; or other drivers repeatedly open the fence at the same time.
        """
        for _ in range(ATTEMPTS):
            admitted = self.check(opener)
            number = self._store.newest() + 1
            if admitted and self._token and number == self._number + 1 and not self.is_lost():
                self._record_takeover(opener)
                return self._token
            if number == 1:
                self._store.make_first()
            token = opener.token()
            entry = FenceEntry(token, opener.query_id, opener.position)
            self._token = ""  # until the work directory has its new name, it is unknown if the output is lost
            if not self._store.create(number, msgspec.json.encode(entry)):
                continue
            opener.check_owned()
            with suppress(SinkFenced):
                self._take(number, token)
                self._begin(number, token, opener)
                return token
        raise SinkError(f"{self._output}: other drivers take this output over without pause; stop them first")

    def _begin(self, number: int, token: str, opener: FenceOpener) -> None:
        """Read the record again. From now on, other drivers can change it only if they take the work directory."""
        data = self._store.recorded(token)
        if data is None:
            raise self.lost()
        committed = self._decoded(data, FenceRecord).for_opener(opener)
        committed.admits(opener, self._output)
        self._number, self._token, self._opener, self._committed = number, token, opener, committed
        self._record_takeover(opener)

    def _record_takeover(self, opener: FenceOpener) -> None:
        opened = self._committed.after_takeover(opener, self._output)
        if opened != self._committed:
            self._record(opened)

    def record(self, position: LogPosition, next_batch: int = 0) -> None:
        """Record a position, see ``SinkCommitter.hold``. Call it before publishing any file of the epoch."""
        if self._opener is None or not self._token:
            raise self.lost()
        committed = self._committed.advanced_to(self._opener, position, next_batch)
        if self._recorded(self._token) != committed:
            self._record(committed)

    def _record(self, committed: FenceRecord) -> None:
        try:
            self._store.record(self._token, msgspec.json.encode(committed))
        except FileNotFoundError:
            if self.is_lost():
                raise self.lost() from None
            raise
        self._committed = committed

    @property
    def is_decided(self) -> bool:
        """True if no copy of this location can take over the output again.

        This holds when the recorded position is an entry that this driver wrote after it opened the fence.
        """
        recorded, opener = self._committed.position, self._opener
        return recorded is not None and opener is not None and recorded.seq > opener.position.seq

    @property
    def next_batch(self) -> int:
        """Exclusive upper bound of the batch ids that sinks may have received."""
        return self._committed.next_batch

    def is_lost(self) -> bool:
        """Return True if another driver has opened the fence and renamed the work directory."""
        token = self._token
        if not token or self._store.recorded(token) is not None or self._store.newest() <= self._number:
            return False
        return token == self._token  # otherwise this driver is opening the fence again in another thread

    def lost(self) -> SinkFenced:
        """Return the error of a driver that has lost the output."""
        return SinkFenced(f"{self._output}: {LOST}")

    def _take(self, number: int, token: str) -> None:
        """Rename the work directory to this driver's token.

        Another driver that opens the fence at the same time creates its entry before it renames the directory. So
        either that driver finds this driver's directory, or this driver finds that driver's entry.

        Raises:
            SinkFenced: the fence log has a later entry.
        """
        for attempt in range(ATTEMPTS):
            self._check_newest(number)
            if self._store.recorded(token) is not None:
                self._check_newest(number)
                return
            older = self._latest(number - 1)
            if older is None or (older == FIRST and number > 1 and attempt < FIRST_TAKEN_AFTER):
                time.sleep(self._patience_s)  # another driver is renaming it: list again
                continue
            with suppress(FileNotFoundError):
                self._store.move(older, token)
        raise SinkError(
            f"{self._output} has lost its work directory: someone removed it, with rows that were not visible yet. "
            "Bring it back; or remove the fence log beside it, too, and roll the query back to the snapshot before"
        )

    def _latest(self, number: int) -> str | None:
        """Return the token of the work directory in use; None if there is none.

        It belongs to the newest driver with a work directory, up to entry ``number``. Older work directories exist only
        in a copy of the output that still has files that were removed from the original.
        """
        folders = self._store.folders()
        for older in range(number, max(0, number - MAX_ENTRIES_SEARCHED), -1):
            token = self._token_of(older)
            if token in folders and self._store.recorded(token) is not None:
                return token
        return FIRST if FIRST in folders else None

    def _check_newest(self, number: int) -> None:
        if self._store.newest() != number:
            raise self.lost()

    def _recorded(self, folder: str) -> FenceRecord:
        data = self._store.recorded(folder)
        return FenceRecord() if data is None else self._decoded(data, FenceRecord)

    def _token_of(self, number: int) -> str:
        """Return the token of an entry; empty if its content is not written yet: its driver has no directory then."""
        try:
            data = self._store.read(number)
        except FileNotFoundError:
            raise SinkError(f"{self._output}: entry {number} of the fence log is missing") from None
        return self._decoded(data, FenceEntry).token if data else ""

    def _decoded(self, data: bytes, kind: type[_Decoded]) -> _Decoded:
        try:
            return decode_json(data, kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SinkError(f"{self._output}: the fence log is damaged: {error!s:.200}") from error


def refused(output: str, opener: FenceOpener, position: LogPosition, location: str) -> SinkError:
    """Return the error for a location that does not contain ``position``, up to which the output was written."""
    by = f" by the location at {location!r:.300}" if location not in ("", opener.location) else ""
    way_out = (
        "say what becomes of the newer output with `penstock snapshot rollback LOCATION SNAPSHOT --over "
        f"{position.name}` and --output keep (its rows come a second time) or --output retract (files and tables take "
        "it back)"
        if opener.has_snapshot
        else "delete this one, which has no snapshot, and begin anew at an empty checkpointLocation"
    )
    return SinkError(
        f"{output} has newer output of query {opener.query_id} than checkpointLocation {opener.location} "
        f"knows of, written{by} after one was copied from the other: this location is older than its output, or "
        "has diverged from it, and rows would come twice or be lost. Go on with the location that wrote it; or "
        f"{way_out}; or start a query of its own with startMode=fork and another output"
    )


class LocalFence(FenceStore):
    """Fence in a directory.

    Args:
        home: private directory of one query at the output.
    """

    def __init__(self, home: Path) -> None:
        self._log = home / "fence"
        self._work = home / "work"

    def work(self, token: str) -> Path:
        """Return the work directory of a token."""
        return self._work / token

    def newest(self) -> int:
        names = [path.name for path in self._log.iterdir()] if self._log.exists() else []
        return max((int(name[:20]) for name in names if _NUMBER.fullmatch(name)), default=0)

    def read(self, number: int) -> bytes:
        return self._entry(number).read_bytes()

    def create(self, number: int, entry: bytes) -> bool:
        self._log.mkdir(parents=True, exist_ok=True)
        return create_exclusively(self._entry(number), entry)

    def folders(self) -> list[str]:
        found = self._work.iterdir() if self._work.exists() else ()
        return sorted(path.name for path in found if _TOKEN.fullmatch(path.name))

    def make_first(self) -> None:
        self.work(FIRST).mkdir(parents=True, exist_ok=True)
        replace_durably(self._position(FIRST), msgspec.json.encode(FenceRecord()))
        fsync_directory(self._work)

    def move(self, older: str, token: str) -> None:
        os.rename(self.work(older), self.work(token))
        fsync_directory(self._work)

    def recorded(self, token: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return self._position(token).read_bytes()
        return None

    def record(self, token: str, committed: bytes) -> None:
        replace_durably(self._position(token), committed)

    def _position(self, token: str) -> Path:
        return self.work(token) / "position.json"

    def _entry(self, number: int) -> Path:
        return self._log / f"{number:020d}.json"
