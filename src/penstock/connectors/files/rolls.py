"""Committed small files that are kept back until together they are worth a file: the option ``rollInterval``.

::

    kept/<fingerprint>/day=1/part-...    committed, and not visible yet
    kept-epochs/e0000000012              every epoch up to 12 is kept (or visible)

*Keep*: each staged file is moved to ``kept`` by a rename, under its final name; when all of an epoch are there and
durable, the mark of the epoch is made. A commit that is repeated after a crash looks: with the mark there is nothing to
do, without it what is still staged is moved. Files of unmarked epochs are left alone by everything else, so an epoch's
files are never gone before it is marked.

*Roll*: files of one directory that are old or large enough together are collected in a bundle and become visible as one
file (``bundles``); one alone is renamed. Which files a roll holds is nowhere but in the bundle, into which each
can be moved only once: so no two rolls, of whatever drivers, share a row.

A driver that starts takes up what it finds: bundles are brought to their end, kept files of marked epochs wait on, by
the time of their writing. Marks only ever rise: one that an outdated driver makes late has no effect.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.connectors.files.bundles import Bundles
from penstock.connectors.files.private_directory import HOME
from penstock.connectors.files.sink_plan import (
    StagedFile,
    epoch_of,
    is_final_name,
    is_kept_folder,
    is_mark,
    roll_tag,
    rolled_name,
)
from penstock.connectors.local_files import fsync_directory, fsync_tree, make_folders

_ROLL = "r"
"""Names of rolls' bundles begin with it."""


@dataclass
class _Group:
    """Kept files of one directory and format that may be rolled: size by name, and since when the oldest waits."""

    sizes: dict[str, int] = field(default_factory=dict)
    since_s: float = float("inf")


class Rolls:
    """What is kept back of one output directory. Not thread-safe; errors as of ``Bundles``.

    Args:
        root: the output directory.
        bundles: of the same directory.
        fingerprint: only files of this format are merged.
        interval_s: how long a file may be kept back.
        target_bytes: how much is worth a file of its own.
        clock: the wall clock in seconds.
    """

    def __init__(
        self,
        root: Path,
        bundles: Bundles,
        fingerprint: str,
        interval_s: float,
        target_bytes: int,
        clock: Callable[[], float],
        private: str = HOME,
    ) -> None:
        self._root = root
        self._bundles = bundles
        self._fingerprint = fingerprint
        self._interval_s = interval_s
        self._target_bytes = target_bytes
        self._clock = clock
        self._private = root / private
        self._kept = self._private / "kept"
        self._marks = self._private / "kept-epochs"
        self._groups: dict[tuple[str, str], _Group] = {}
        self._fresh: list[tuple[str, StagedFile]] = []
        self._query_id = ""

    def take_up(self, query_id: str) -> None:
        """What earlier drivers kept; call it once before anything else."""
        self._query_id = query_id
        marked = self.kept_epoch()
        for fingerprint, path in self._found():
            if epoch_of(path.name) <= marked:
                facts = path.stat()
                directory = path.parent.relative_to(self._kept / fingerprint).as_posix()
                self._add(fingerprint, "" if directory == "." else directory, path.name, facts.st_size, facts.st_mtime)

    def kept_epoch(self) -> int:
        """Every epoch up to this one is kept, or visible. Looked up: another driver may have come further."""
        if not self._marks.exists():
            return 0
        return max((int(path.name[1:]) for path in self._marks.iterdir() if is_mark(path.name)), default=0)

    def path(self, fingerprint: str, file: StagedFile) -> Path:
        """Where a file is while it is kept."""
        return self._kept / fingerprint / file.final

    def keep(self, fingerprint: str, file: StagedFile) -> bool:
        """Move a staged file here, unless it is here; False if it is nowhere."""
        staged, kept = self._root / file.staged, self.path(fingerprint, file)
        if staged.exists():
            make_folders(kept.parent, self._private)
            os.rename(staged, kept)
        elif not kept.exists():
            return False
        self._fresh.append((fingerprint, file))
        return True

    def forget_fresh(self) -> None:
        """An epoch is begun (again)."""
        self._fresh.clear()

    def mark(self, epoch: int) -> None:
        """All of the epoch that is to be kept is here: from now on it may be rolled. Durable on return."""
        if not self._fresh:
            return
        for directory in sorted({self.path(fingerprint, file).parent for fingerprint, file in self._fresh}):
            fsync_tree(directory, self._root)
        fsync_directory(self._private / "staged")
        self._marks.mkdir(exist_ok=True)
        older = sorted(path for path in self._marks.iterdir() if is_mark(path.name))[:-1]
        (self._marks / f"e{epoch:010d}").touch()
        fsync_tree(self._marks, self._root)
        for mark in older:
            mark.unlink(missing_ok=True)
        for fingerprint, file in self._fresh:
            self._add(fingerprint, file.directory, file.name, file.size, self._clock())
        self._fresh.clear()

    def due_in_s(self) -> float | None:
        """When the next roll is due, from now; None if nothing is kept."""
        if not self._groups:
            return None
        return max(0.0, min(group.since_s for group in self._groups.values()) + self._interval_s - self._clock())

    def publish(self, everything: bool = False) -> None:
        """Finish what was begun, and roll what is due; ``everything``: whatever is kept."""
        for name in self._bundles.names():
            if name.startswith(_ROLL):
                self._finish(name)
        oldest_s = self._clock() - self._interval_s
        for key, group in list(self._groups.items()):
            if everything or group.since_s <= oldest_s or sum(group.sizes.values()) >= self._target_bytes:
                self._roll(*key)

    def retract(self, query_id: str, unwanted: Callable[[str], bool]) -> None:
        """Remove what is kept of unwanted epochs, told by file name, and end every roll that was begun without it.
        Instead of ``take_up``, which comes behind it."""
        self._query_id = query_id
        for name in self._bundles.names():
            if name.startswith(_ROLL):
                first = self._bundles.first_file(name)
                if first is None:
                    self._bundles.give_up(name)
                else:
                    self._bundles.split(name, self._final(name, first), unwanted)
        for _, path in self._found():
            if unwanted(path.name):
                path.unlink(missing_ok=True)
                fsync_directory(path.parent)

    def _roll(self, fingerprint: str, directory: str) -> None:
        group = self._groups[fingerprint, directory]
        sources = [self._kept / fingerprint / directory / name for name in sorted(group.sizes)]
        if fingerprint != self._fingerprint or len(sources) == 1:
            for source in sources:
                self._publish_alone(source, self._root / directory)
            del self._groups[fingerprint, directory]
            return
        epochs = {epoch_of(source.name) for source in sources}
        name = f"{roll_tag(secrets.token_hex(8), epochs)}-{fingerprint}"
        moves = {source: (Path(directory) / source.name).as_posix() for source in sources}
        self._bundles.collect(name, moves)
        del self._groups[fingerprint, directory]
        self._finish(name)

    def _publish_alone(self, source: Path, directory: Path) -> None:
        if source.exists():
            directory.mkdir(parents=True, exist_ok=True)
            os.rename(source, directory / source.name)
            fsync_tree(directory, self._root)

    def _finish(self, name: str) -> None:
        first = self._bundles.first_file(name)
        if first is None:
            self._bundles.remove_empty(name)
            return
        self._bundles.finish(name, self._final(name, first))

    def _final(self, name: str, first: Path) -> str:
        """Where a roll becomes visible. ``first``: any of its files."""
        return (first.parent / rolled_name(self._query_id, name.rpartition("-")[0], first.name)).as_posix()

    def _found(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(self._kept.rglob("*") if self._kept.exists() else ()):
            folder = path.relative_to(self._kept).parts[0]
            if is_kept_folder(folder) and is_final_name(path.name) and path.is_file() and not path.is_symlink():
                yield folder, path

    def _add(self, fingerprint: str, directory: str, name: str, size: int, since_s: float) -> None:
        group = self._groups.setdefault((fingerprint, directory), _Group())
        group.sizes[name] = size
        group.since_s = min(group.since_s, since_s)
