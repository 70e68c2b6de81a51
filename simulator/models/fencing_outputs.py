"""Outputs of the model of copies (``fencing``), as their systems store them. Every operation is one step.

``shown`` is what a reader sees: names, one per history and epoch, in the order in which they became visible.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.connectors.base import FenceOpener
from penstock.connectors.fence import FIRST, Fence, FenceRecord, FenceStore
from penstock.connectors.python.fence_cell import FenceCell
from penstock.model.commits import LogPosition
from penstock.testing.failure import SimulationFailure
from simulator.engine.coroutine import suspend


@dataclass(frozen=True)
class Epoch:
    """``name``: its rows, those of one history. ``position``: the entry of its snapshot."""

    number: int
    name: str
    batch: int
    position: LogPosition


@dataclass
class Directory(FenceStore):
    """An output directory, or that of a table.

    Attributes:
        work: by token of a work directory, the names in it.
        visible: every published epoch and its name, in order.
        moves: renames of work directories that are under way.
    """

    chance: random.Random
    moves: int = 0
    entries: dict[int, bytes] = field(default_factory=dict)
    work: dict[str, dict[str, bytes]] = field(default_factory=dict)
    visible: list[tuple[int, str]] = field(default_factory=list)

    @property
    def shown(self) -> list[str]:
        return [name for _, name in self.visible]

    def newest(self) -> int:
        suspend()
        return max(self.entries, default=0)

    def read(self, number: int) -> bytes:
        return self.entries[number]

    def create(self, number: int, entry: bytes) -> bool:
        suspend()
        created = self.entries.setdefault(number, entry) is entry
        suspend()
        return created

    def folders(self) -> list[str]:
        """A listing while a directory is renamed may have neither of its names."""
        suspend()
        misses = self.moves > 0 and self.chance.random() < 0.5
        return sorted(name for name in self.work if name == FIRST or not misses)

    def make_first(self) -> None:
        suspend()
        self.work.setdefault(FIRST, {})["position"] = msgspec.json.encode(FenceRecord())

    def move(self, older: str, token: str) -> None:
        self.moves += 1
        suspend()
        self.moves -= 1
        if older not in self.work:
            raise FileNotFoundError(older)
        self.work[token] = self.work.pop(older)

    def recorded(self, token: str) -> bytes | None:
        suspend()
        return self.work.get(token, {}).get("position")

    def record(self, token: str, committed: bytes) -> None:
        self.put(token, {"position": committed})

    def put(self, token: str, files: dict[str, bytes]) -> None:
        """Files, with a directory around them if there are several, are renamed into the work directory."""
        suspend()
        if token not in self.work:
            raise FileNotFoundError(token)
        self.work[token] |= files

    def read_work(self, token: str, name: str) -> bytes | None:
        """Return the content of a file in the work directory; None if it does not exist."""
        suspend()
        return self.work.get(token, {}).get(name)

    def publish(self, token: str, name: str, epoch: int, shown: str) -> None:
        """One rename, out of the work directory. Raises FileNotFoundError if the file is not there."""
        suspend()
        if self.work.get(token, {}).pop(name, None) is None:
            raise FileNotFoundError(name)
        self.visible.append((epoch, shown))

    def remove(self, token: str, unneeded: list[str]) -> None:
        """Remove files of the work directory, if it is there."""
        suspend()
        files = self.work.get(token, {})
        for name in unneeded:
            files.pop(name, None)

    def take_away(self, token: str, shown: tuple[int, str]) -> None:
        """One rename, of a visible file into the work directory."""
        suspend()
        if token not in self.work:
            raise FileNotFoundError(token)
        if shown in self.visible:
            self.visible.remove(shown)


@dataclass
class Database:
    """A user's sink with transactions, which is idempotent by batch id."""

    value: bytes | None = None
    rows: dict[int, str] = field(default_factory=dict)

    @property
    def shown(self) -> list[str]:
        return list(self.rows.values())

    def readFence(self, queryId: str) -> bytes | None:  # noqa: N802, N803
        suspend()
        return self.value

    def replaceFence(self, queryId: str, expected: bytes | None, value: bytes) -> bool:  # noqa: N802, N803
        suspend()
        if self.value != expected:
            return False
        self.value = value
        return True

    def insert(self, fence: bytes, batch: int, name: str) -> None:
        """One transaction. Raises ValueError if another driver has the fence."""
        suspend()
        if self.value != fence:
            raise ValueError("the fence has changed")
        written = self.rows.setdefault(batch, name)
        if written != name:
            raise SimulationFailure(f"{name} is lost: {written} has its batch id {batch}", "batch ids")


@dataclass
class Function:
    """Target of ``foreachBatch``: not fenced, idempotent by batch id."""

    rows: dict[int, str] = field(default_factory=dict)

    @property
    def shown(self) -> list[str]:
        return list(self.rows.values())

    def write(self, batch: int, name: str) -> None:
        suspend()
        written = self.rows.setdefault(batch, name)
        if written != name:
            raise SimulationFailure(f"{name} is lost: {written} has its batch id {batch}", "batch ids")


Target = Directory | Database | Function


class SinkModel:
    """A committer. See ``SinkCommitter``."""

    def check(self, opener: FenceOpener) -> bool:
        return True

    def open(self, opener: FenceOpener) -> None:
        """Open the fence; see ``SinkCommitter.fence``."""

    def check_held(self) -> None:
        """Check the held output; see ``SinkCommitter.check_held``."""

    def hold(self, position: LogPosition, next_batch: int = 0) -> None:
        """Hold output; see ``SinkCommitter.hold``."""

    def newest_epoch(self) -> int:
        return 0

    def next_batch(self) -> int:
        return 0

    def stage(self, name: str) -> None:
        """Stage rows like a slot."""

    def retract(self, above: int, below: int) -> None:
        """Retract output; see ``SinkCommitter.retract``."""

    def commit(self, epoch: Epoch, needed: set[str]) -> None:
        """Commit an epoch. ``needed``: names of the staged epochs of this history."""
        raise NotImplementedError


class FencedDirectory(SinkModel):
    """Model of file sinks and tables."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._fence = Fence(directory, "output", patience_s=0.0)
        self._work = ""

    def check(self, opener: FenceOpener) -> bool:
        return self._fence.check(opener)

    def open(self, opener: FenceOpener) -> None:
        self._work = self._fence.open(opener)

    def check_held(self) -> None:
        if self._fence.is_lost():
            raise self._fence.lost()

    def hold(self, position: LogPosition, next_batch: int = 0) -> None:
        with self._in_work():
            self._fence.record(position, next_batch)

    def next_batch(self) -> int:
        return self._fence.next_batch

    def newest_epoch(self) -> int:
        return max((epoch for epoch, _ in self._directory.visible), default=0)

    def retract(self, above: int, below: int) -> None:
        for shown in list(self._directory.visible):
            if above < shown[0] < below:
                with self._in_work():
                    self._directory.take_away(self._work, shown)

    @contextmanager
    def _in_work(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if self._fence.is_lost():
                raise self._fence.lost() from None
            raise SimulationFailure("a driver misses a file and has not lost the output", "fence") from None


class FilesModel(FencedDirectory):
    """A file sink: rows are staged in the work directory, and a file's final name says its epoch."""

    def stage(self, name: str) -> None:
        with self._in_work():
            self._directory.put(self._work, {name: b""})

    def commit(self, epoch: Epoch, needed: set[str]) -> None:
        self.hold(epoch.position, epoch.batch + 1)
        if self._fence.is_decided:
            staged = [name for name in self._directory.work.get(self._work, {}) if name not in needed | {"position"}]
            self._directory.remove(self._work, staged)
        if all(number != epoch.number for number, _ in self._directory.visible):
            with self._in_work():
                self._directory.publish(self._work, epoch.name, epoch.number, epoch.name)


class TableModel(FencedDirectory):
    """Model of ``toTable``: Spark writes next to the work directory, where a mark names the last visible epoch."""

    def newest_epoch(self) -> int:
        files = self._directory.work.get(self._work, {})
        ready = [int(name.removeprefix("ready-")) for name in files if name.startswith("ready-")]
        return max([super().newest_epoch(), int(files.get("mark", b"0")), *ready])

    def commit(self, epoch: Epoch, needed: set[str]) -> None:
        directory, work, ready = self._directory, self._work, f"ready-{epoch.number}"
        if int(directory.read_work(work, "mark") or b"0") >= epoch.number:
            return
        shown = directory.read_work(work, ready)
        if shown is None:
            suspend()
            self.hold(epoch.position, epoch.batch + 1)
            with self._in_work():
                directory.put(work, {ready: epoch.name.encode(), f"file-{epoch.number}": b""})
            shown = epoch.name.encode()
        if directory.read_work(work, f"file-{epoch.number}") is not None:
            with self._in_work():
                directory.publish(work, f"file-{epoch.number}", epoch.number, shown.decode())
        with self._in_work():
            directory.put(work, {"mark": str(epoch.number).encode()})
        directory.remove(work, [ready])

    def retract(self, above: int, below: int) -> None:
        for name in list(self._directory.work.get(self._work, {})):
            kind, _, number = name.partition("-")
            if kind in ("ready", "file") and above < int(number) < below:
                self._directory.remove(self._work, [name])
        super().retract(above, below)


class DatabaseModel(SinkModel):
    """A Python data source with a fence."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._fence = FenceCell(lambda: database, "query", "output")

    def check(self, opener: FenceOpener) -> bool:
        return self._fence.check(opener)

    def open(self, opener: FenceOpener) -> None:
        self._fence.open(opener)

    def check_held(self) -> None:
        if self._fence.is_lost():
            raise self._fence.lost()

    def hold(self, position: LogPosition, next_batch: int = 0) -> None:
        self._fence.record(position, next_batch)

    def next_batch(self) -> int:
        return self._fence.next_batch

    def commit(self, epoch: Epoch, needed: set[str]) -> None:
        value = self._fence.record(epoch.position, epoch.batch + 1)
        try:
            self._database.insert(value, epoch.batch, epoch.name)
        except ValueError:
            if self._fence.is_lost():
                raise self._fence.lost() from None
            raise SimulationFailure("a driver has not lost the output, and its fence has changed", "fence") from None


class FunctionModel(SinkModel):
    """``foreachBatch``."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def commit(self, epoch: Epoch, needed: set[str]) -> None:
        self._function.write(epoch.batch, epoch.name)


KINDS = ("files", "table", "database", "function")


def target_of(kind: str, chance: random.Random) -> Target:
    """A new output of a kind."""
    match kind:
        case "database":
            return Database()
        case "function":
            return Function()
    return Directory(chance)


def sink_of(kind: str, target: Target) -> SinkModel:
    """One driver's committer for it."""
    makers: dict[str, Callable[[Any], SinkModel]] = {
        "files": FilesModel,
        "table": TableModel,
        "database": DatabaseModel,
        "function": FunctionModel,
    }
    return makers[kind](target)
