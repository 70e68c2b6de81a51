"""Fence of an output: decides which driver may make rows visible there. ``docs/fencing.md`` explains each step.

The log of a location fences the drivers of that location. This fence also fences drivers of copies of the location. It
has a log at the output, and one directory with everything that may still become visible. The driver that opens the
fence renames this directory.
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
"""Attempts of a driver to open a fence that other drivers open at the same time."""
FIRST = "0" * 32
"""Token of the work directory that exists before the first entry."""
FIRST_TAKEN_AFTER = 3
"""Listings after which a second driver takes ``FIRST``: the first driver was killed before it took it."""
MAX_ENTRIES_SEARCHED = 1 << 10
"""Newest entries among which the last driver with a work directory is searched."""
LOST = "another driver of this query has taken the output over"
_NUMBER = re.compile(r"[0-9]{20}\.json")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_Decoded = TypeVar("_Decoded")


class FenceEntry(msgspec.Struct, frozen=True):
    """Entry of a fence log.

    Attributes:
        token: token of the opener, 32 random hex digits: the name of its work directory.
        follows: position of the opener in its location's log.
    """

    token: FenceToken
    query_id: QueryId
    follows: LogPosition


class FenceRecord(msgspec.Struct, frozen=True):
    """Record at the output of the last position whose rows may be visible.

    Attributes:
        position: position in the log of the location that wrote it; None before the first commit.
        location: path of that location, for messages only.
        query_id: query of that location; empty if it was not recorded.
        next_batch: all batch ids that the sink may have got are lower.
    """

    position: LogPosition | None = None
    location: FreeText = ""
    query_id: OriginId = ""
    next_batch: Count = 0

    def for_opener(self, opener: FenceOpener) -> FenceRecord:
        """Return the record for an opener; an empty one if another query wrote it: this one has the output now."""
        return self if self.query_id in ("", opener.query_id) else FenceRecord()

    def advanced_to(self, opener: FenceOpener, position: LogPosition, next_batch: int) -> FenceRecord:
        """Return the record after the opener's location, which contains the recorded position, reached a position.

        The position never goes back, because the output has the recorded rows. A restarted driver or a copy may commit
        older epochs again.
        """
        location = opener.location
        if self.position is not None and self.position.seq >= position.seq:
            position, location = self.position, self.location
        return FenceRecord(position, location, opener.query_id, max(self.next_batch, next_batch))

    def after_takeover(self, opener: FenceOpener, output: str) -> FenceRecord:
        """Return the record after a driver has taken over the output.

        If its location overrides the recorded position, or left entries that copies may have, the new position is in no
        copy of the location.

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
    """Storage of a fence. Every operation is atomic."""

    @abstractmethod
    def newest(self) -> int:
        """Return the number of the newest entry; 0 if there is none."""

    @abstractmethod
    def read(self, number: int) -> bytes:
        """Return an entry. Raise FileNotFoundError if it does not exist."""

    @abstractmethod
    def create(self, number: int, entry: bytes) -> bool:
        """Create an entry durably. Return False if that number exists."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the tokens with a work directory. One that is renamed during the call may be missing."""

    @abstractmethod
    def make_first(self) -> None:
        """Create the work directory ``FIRST``, unless it exists. No other work directory is ever created."""

    @abstractmethod
    def move(self, older: str, token: str) -> None:
        """Rename a work directory. Raise FileNotFoundError if it no longer exists."""

    @abstractmethod
    def recorded(self, token: str) -> bytes | None:
        """Return the last record of any driver in a work directory; None if there is none, or no such directory."""

    @abstractmethod
    def record(self, token: str, committed: bytes) -> None:
        """Replace the record durably. Raise FileNotFoundError if the work directory no longer exists."""


class Fence:
    """Fence of one output, as one driver uses it.

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
            True if it does; False only for an opener that overrides newer output.

        Raises:
            SinkError: it does not. The text has the ways out.
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
        """Return the path of the location that committed last; empty if none has."""
        held = self.held()
        return self._recorded(held).location if held else ""

    def open(self, opener: FenceOpener) -> str:
        """Take over the output from all other drivers, unless this driver has it.

        Returns:
            The token of the work directory that this driver has from now on.

        Raises:
            Fenced: the driver no longer owns its location.
            SinkError: see ``check``; or other drivers open the fence without pause.
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
            self._token = ""  # it is not known if the output is lost until the work directory has its new name
            if not self._store.create(number, msgspec.json.encode(entry)):
                continue
            opener.check_owned()
            with suppress(SinkFenced):
                self._take(number, token)
                self._begin(number, token, opener)
                return token
        raise SinkError(f"{self._output}: other drivers take this output over without pause; stop them first")

    def _begin(self, number: int, token: str, opener: FenceOpener) -> None:
        """Read the record again. From now on other drivers cannot change it, unless they take the directory."""
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
        """Record a position, see ``SinkCommitter.hold``. No file of an epoch enters the work directory before."""
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
        """True if no copy of this location can take over the output again: the recorded position is of this driver."""
        recorded, opener = self._committed.position, self._opener
        return recorded is not None and opener is not None and recorded.seq > opener.position.seq

    @property
    def next_batch(self) -> int:
        """Batch id after all that sinks may have got."""
        return self._committed.next_batch

    def is_lost(self) -> bool:
        """Return True if another driver has opened the fence and renamed the work directory."""
        token = self._token
        if not token or self._store.recorded(token) is not None or self._store.newest() <= self._number:
            return False
        return token == self._token  # otherwise this driver opens the fence again at this moment

    def lost(self) -> SinkFenced:
        """Return the error of a driver that has lost the output."""
        return SinkFenced(f"{self._output}: {LOST}")

    def _take(self, number: int, token: str) -> None:
        """Rename the work directory to this driver's token.

        Another driver that opens the fence at the same time creates its entry before it renames. So either it finds
        this directory, or this driver finds its entry.

        Raises:
            SinkFenced: there is a later entry.
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
        """Return the work directory in use: that of the newest driver, up to an entry, that has one.

        Older ones exist only in a copy of the output from which removed files were not removed.
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
        """Return the token of an entry; empty for an entry that is not written yet, whose driver has no directory."""
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
    """Return the error of a location that does not contain all output, which was written up to a position."""
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
        home: the private directory of one query at the output.
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
