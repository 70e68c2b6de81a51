"""Failures on demand: a marker file makes the next operator that comes by a certain place raise, once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from penstock.state.table import TableCapture

IN_OPERATORS = ("open", "process", "snapshot", "capture", "restore", "close")
IN_SINKS = ("write", "prepare", "commit")


class Injected(OSError):
    """The failure that was asked for."""


def arm(folder: Path, place: str) -> Path:
    """Make the next caller at this point raise. The returned marker is deleted then."""
    marker = folder / f"fail-{place}"
    marker.touch()
    return marker


def trip(folder: str, place: str) -> None:
    """Raise if the place is armed. Of several processes that come by, one takes the marker away."""
    try:
        (Path(folder) / f"fail-{place}").unlink()
    except FileNotFoundError:
        return
    raise Injected(f"injected in {place} of process {os.getpid()}")  # the same error over and over would be the input's


class FragileCapture(TableCapture):
    """A capture that may fail while it is written, on the upload thread."""

    def __init__(self, folder: str, inner: TableCapture) -> None:
        self._folder = folder
        self._inner = inner
        self.schema, self.serial, self.rows = inner.schema, inner.serial, inner.rows

    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        trip(self._folder, "capture")
        return self._inner.base(first, last)

    def changed_since(self, serial: int) -> int | None:
        return self._inner.changed_since(serial)

    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        trip(self._folder, "capture")
        return self._inner.delta(since, first, last)

    def forget_before(self) -> None:
        self._inner.forget_before()

    def release(self) -> None:
        self._inner.release()
