"""Figures of snapshots that were derived from their metadata before, kept in the user's own cache folder.

Never in the location: whoever lists it may have no right to write there, and it belongs to its query's driver. What is
kept goes by the checksum of the metadata that it was derived from, which the log says: it cannot be out of date, only
unneeded. A cache that is gone, damaged or of another release is as good as empty.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
import xxhash

from penstock.snapshot.verbs.measures import Measures

VERSION = b"penstock figures 1\n"
"""Changes with what ``Measures`` means."""
_DIGEST_BYTES = 16


class FiguresCache:
    """Of one location: one file. Layout: ``VERSION``, the XXH3-128 digest of the rest, msgpack by metadata checksum."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def of(location: str) -> FiguresCache:
        """The file below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        name = xxhash.xxh3_128_hexdigest(location.encode())
        return FiguresCache(Path(base) / "penstock" / "snapshot-figures" / f"{name}.msgpack")

    def load(self) -> dict[str, Measures]:
        """Figures by metadata checksum; empty where there is nothing that can be used."""
        try:
            data = self.path.read_bytes()
        except OSError:
            return {}
        head = len(VERSION) + _DIGEST_BYTES
        content = data[head:]
        if not data.startswith(VERSION) or data[len(VERSION) : head] != xxhash.xxh3_128_digest(content):
            return {}
        try:
            return msgspec.msgpack.decode(content, type=dict[str, Measures])
        except msgspec.DecodeError:
            return {}

    def files(self) -> dict[str, Collection[str]]:
        """The data files that snapshots refer to, by metadata checksum, for ``Catalog``."""
        return {checksum: measures.files for checksum, measures in self.load().items()}

    def save(self, figures: Mapping[str, Measures]) -> None:
        """Replace the file; where that cannot be done, the next listing reads metadata again."""
        content = msgspec.msgpack.encode(dict(figures))
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.tmp")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(VERSION + xxhash.xxh3_128_digest(content) + content)
                os.replace(temporary, self.path)
            finally:
                temporary.unlink(missing_ok=True)
