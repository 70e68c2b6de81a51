"""Cache of data read from a location, in the user's own cache folder.

The cache is not in the location: a user who lists it may not be permitted to write there, and the location belongs to
its query's driver. All cached values are derived from files that never change. Each value has a key that identifies
these files, so it cannot be stale. A missing or damaged cache, or one of another release, counts as empty.
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
from penstock.snapshots.commands.snapshot_sizes import SnapshotSizes
from penstock.snapshots.format.envelope import digest
from penstock.snapshots.log.entries import EMPTY_LOG, LogView
from penstock.snapshots.log.snapshot_log import entry_path
from penstock.snapshots.store.store import Store

VERSION = b"penstock location 3\n"
"""Version of the cache file. It must change whenever ``CachedLocation`` or the meaning of its fields changes."""
_DIGEST_BYTES = 16
MAX_LOGS = 32
"""Maximum number of logs in memory. Each log has a record of every snapshot."""


class CachedLocation(msgspec.Struct, frozen=True):
    """Cached content of one location.

    Attributes:
        measures: sizes of snapshots, by the checksum of their metadata in the log.
        log: view of the log up to an entry.
        last_entry: digest of that entry's file, which contains a random token. If the digest is unchanged, the location
            is the same and its log continues from there.
        sizes: sizes of data files by path. A location never uses a path twice.
    """

    measures: dict[str, SnapshotSizes] = {}
    log: LogView = EMPTY_LOG
    last_entry: str = ""
    sizes: dict[str, int] = {}

    def files(self) -> dict[str, Collection[str]]:
        """Return the files that snapshots refer to, by checksum of the metadata, for ``Catalog``."""
        return {checksum: measures.files for checksum, measures in self.measures.items()}


EMPTY_CACHE = CachedLocation()


class LocationCache:
    """Cache file of one location: ``VERSION``, the XXH3-128 digest of the rest, and ``CachedLocation`` as msgpack."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def of(location: str) -> LocationCache:
        """Return the cache of a location below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return LocationCache(Path(base) / "penstock" / "locations" / f"{digest(location.encode())}.msgpack")

    def load(self, store: Store) -> CachedLocation:
        """Return the cached content that is still valid for the location. Raises OSError if the store fails."""
        known = self._read()
        if known is EMPTY_CACHE or (known.last_entry and _last_entry(store, known.log) == known.last_entry):
            return known
        return CachedLocation(known.measures)

    def save(self, store: Store, known: CachedLocation) -> None:
        """Replace the cache file. Errors of the cache folder are ignored: the next command reads the location again."""
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

    def _read(self) -> CachedLocation:
        try:
            data = self.path.read_bytes()
        except OSError:
            return EMPTY_CACHE
        head = len(VERSION) + _DIGEST_BYTES
        content = data[head:]
        if not data.startswith(VERSION) or data[len(VERSION) : head] != xxhash.xxh3_128_digest(content):
            return EMPTY_CACHE
        try:
            return decode_msgpack(content, CachedLocation)
        except msgspec.DecodeError:
            return EMPTY_CACHE


class LogCache:
    """Logs that this process has read recently. Next time it reads only their new entries. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: OrderedDict[str, tuple[LogView, str]] = OrderedDict()

    def get(self, store: Store) -> LogView:
        """Return the cached view of the store's log; empty if there is none. Raises OSError if the store fails."""
        with self._lock:
            view, last_entry = self._logs.get(store.root, (EMPTY_LOG, ""))
        return view if last_entry and _last_entry(store, view) == last_entry else EMPTY_LOG

    def put(self, store: Store, view: LogView) -> None:
        """Keep a view of the store's log. Raises OSError if the store fails."""
        with self._lock:
            known = self._logs.get(store.root)
        if known is not None and known[0] is view:
            return
        last_entry = _last_entry(store, view)
        with self._lock:
            self._logs[store.root] = view, last_entry
            self._logs.move_to_end(store.root)
            while len(self._logs) > MAX_LOGS:
                self._logs.popitem(last=False)


def _last_entry(store: Store, view: LogView) -> str:
    """Return the digest of the newest entry of the view; empty if there is none or it was removed."""
    try:
        return digest(store.read(entry_path(view.next_seq - 1)))
    except FileNotFoundError:
        return ""
