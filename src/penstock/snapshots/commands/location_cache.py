"""What was read of a location before, kept in the user's own cache folder.

Never in the location: whoever lists it may have no right to write there, and it belongs to its query's driver. All that
is kept was derived from files that never change, and each part goes by what shows that these are still the same: so it
cannot be out of date, only unneeded. A cache that is gone, damaged or of another release is as good as empty.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path

import msgspec
import xxhash

from penstock.decoding import decode_msgpack
from penstock.snapshots.commands.measures import Measures
from penstock.snapshots.format.envelope import digest
from penstock.snapshots.log.entries import NOTHING_LOGGED, LogView
from penstock.snapshots.log.snapshot_log import entry_path
from penstock.snapshots.store.store import Store

VERSION = b"penstock location 3\n"
"""Changes with what ``Known`` and all that is in it mean."""
_DIGEST_BYTES = 16
REMEMBERED = 32
"""Logs, each with a record of every snapshot that there is."""


class Known(msgspec.Struct, frozen=True):
    """Of one location.

    Attributes:
        measures: of snapshots, by the checksum of their metadata, which the log says.
        log: what the log said up to an entry.
        last_entry: the digest of that entry's file, which has a random token in it: where it is the same, this is the
            same location, and the log goes on from there.
        sizes: of data files, by path. A location never uses a path twice.
    """

    measures: dict[str, Measures] = {}
    log: LogView = NOTHING_LOGGED
    last_entry: str = ""
    sizes: dict[str, int] = {}

    def files(self) -> dict[str, Collection[str]]:
        """What snapshots refer to, for ``Catalog``."""
        return {checksum: measures.files for checksum, measures in self.measures.items()}


NOTHING = Known()


class LocationCache:
    """Of one location: one file. Layout: ``VERSION``, the XXH3-128 digest of the rest, ``Known`` as msgpack."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def of(location: str) -> LocationCache:
        """The file below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return LocationCache(Path(base) / "penstock" / "locations" / f"{digest(location.encode())}.msgpack")

    def load(self, store: Store) -> Known:
        """What can be used at this location as it is now; it may be nothing. Raises OSError if the store fails."""
        known = self._kept()
        if known is NOTHING or (known.last_entry and _last_entry(store, known.log) == known.last_entry):
            return known
        return Known(known.measures)

    def save(self, store: Store, known: Known) -> None:
        """Replace the file, with the ``last_entry`` of ``known.log``; where that cannot be done, it is read again."""
        last_entry = _last_entry(store, known.log)
        content = msgspec.msgpack.encode(msgspec.structs.replace(known, last_entry=last_entry))
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.tmp")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                temporary.write_bytes(VERSION + xxhash.xxh3_128_digest(content) + content)
                os.replace(temporary, self.path)
            finally:
                temporary.unlink(missing_ok=True)

    def _kept(self) -> Known:
        try:
            data = self.path.read_bytes()
        except OSError:
            return NOTHING
        head = len(VERSION) + _DIGEST_BYTES
        content = data[head:]
        if not data.startswith(VERSION) or data[len(VERSION) : head] != xxhash.xxh3_128_digest(content):
            return NOTHING
        try:
            return decode_msgpack(content, Known)
        except msgspec.DecodeError:
            return NOTHING


class LogMemory:
    """The logs that this process read last: who looks at a location again and again reads what was appended since.
    Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: OrderedDict[str, tuple[LogView, str]] = OrderedDict()

    def recall(self, store: Store) -> LogView:
        """What is known of the log that is at this place now; it may be nothing. Raises OSError if the store fails."""
        with self._lock:
            view, last_entry = self._logs.get(store.root, (NOTHING_LOGGED, ""))
        return view if last_entry and _last_entry(store, view) == last_entry else NOTHING_LOGGED

    def remember(self, store: Store, view: LogView) -> None:
        """As it was just read. Raises OSError if the store fails."""
        with self._lock:
            known = self._logs.get(store.root)
        if known is not None and known[0] is view:
            return
        last_entry = _last_entry(store, view)
        with self._lock:
            self._logs[store.root] = view, last_entry
            self._logs.move_to_end(store.root)
            while len(self._logs) > REMEMBERED:
                self._logs.popitem(last=False)


def _last_entry(store: Store, view: LogView) -> str:
    """The digest of the newest entry that the view knows; empty where there is none, or it was removed since."""
    try:
        return digest(store.read(entry_path(view.next_seq - 1)))
    except FileNotFoundError:
        return ""
