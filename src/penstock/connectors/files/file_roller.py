"""File roller: keeps back committed small files until they are merged to a larger one (option ``rollInterval``).

::

    kept/<fingerprint>/day=1/part-...    committed, and not visible yet
    kept-epochs/e0000000012              mark: every epoch up to 12 is kept (or visible)

*Keep*: a rename moves each staged file to ``kept``, under its final name. When all files of an epoch are there and
durable, the epoch is marked. A commit may be repeated after a crash. If the mark exists, the repeated commit does
nothing; otherwise it moves the files that are still staged. Nothing else moves files of unmarked epochs, so no file of
an epoch leaves ``kept`` before the epoch is marked.

*Roll*: files of one directory that are old enough, or large enough together, are collected in a bundle and become
visible as one file (``bundles``). A single file is renamed. Only the bundle records which files belong to a roll, and a
file can be moved into a bundle only once. So two rolls, even of different drivers, never share a row.

A starting driver finishes the bundles that it finds, and continues to keep back the files of marked epochs. Their age
is the time since they were written. Only the highest mark counts: a late mark of an outdated driver has no effect.
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
"""First letter of the names of bundles for rolls."""


@dataclass
class _KeptGroup:
    """Kept files of one directory and format that may be rolled.

    Attributes:
        sizes: size of each file in bytes, by name.
        since_s: time from which the oldest file has been kept, in seconds since 1970.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    since_s: float = float("inf")


class FileRoller:
    """Roller of the files of one output directory. Not thread-safe. Raises the same errors as ``Bundles``.

    Args:
        root: the output directory.
        bundles: bundles of the same directory.
        fingerprint: fingerprint of a format; only files of this format are merged.
        interval_s: longest time for which a file is kept back, in seconds.
        target_bytes: files are rolled immediately when their sizes add up to this.
        clock: returns the wall-clock time in seconds.
        private: directory of the kept files, relative to ``root``.
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
        self._groups: dict[tuple[str, str], _KeptGroup] = {}
        self._unmarked: list[tuple[str, StagedFile]] = []
        self._query_id = ""

    def restore(self, query_id: str) -> None:
        """Restore the files that earlier drivers kept. Call it once, before all other methods."""
        self._query_id = query_id
        marked = self.kept_epoch()
        for fingerprint, path in self._kept_files():
            if epoch_of(path.name) <= marked:
                status = path.stat()
                directory = path.parent.relative_to(self._kept / fingerprint).as_posix()
                self._add(
                    fingerprint, "" if directory == "." else directory, path.name, status.st_size, status.st_mtime
                )

    def kept_epoch(self) -> int:
        """Return the highest marked epoch: all epochs up to it are kept or visible.

        The marks are read at each call, because another driver may have added one.
        """
        if not self._marks.exists():
            return 0
        return max((int(path.name[1:]) for path in self._marks.iterdir() if is_mark(path.name)), default=0)

    def path(self, fingerprint: str, file: StagedFile) -> Path:
        """Return the path of a file while it is kept."""
        return self._kept / fingerprint / file.final

    def keep(self, fingerprint: str, file: StagedFile) -> bool:
        """Move a staged file to the kept files, if it is still staged. Return False if it is in neither directory."""
        staged, kept = self._root / file.staged, self.path(fingerprint, file)
        if staged.exists():
            make_folders(kept.parent, self._private)
            os.rename(staged, kept)
        elif not kept.exists():
            return False
        self._unmarked.append((fingerprint, file))
        return True

    def begin_epoch(self) -> None:
        """Begin an epoch, or its repetition: forget the files that ``keep`` has moved since the last mark."""
        self._unmarked.clear()

    def mark(self, epoch: int) -> None:
        """Mark the epoch durably. All of its small files must be kept; they may be rolled from now on."""
        if not self._unmarked:
            return
        for directory in sorted({self.path(fingerprint, file).parent for fingerprint, file in self._unmarked}):
            fsync_tree(directory, self._root)
        fsync_directory(self._private / "staged")
        self._marks.mkdir(exist_ok=True)
        older = sorted(path for path in self._marks.iterdir() if is_mark(path.name))[:-1]
        (self._marks / f"e{epoch:010d}").touch()
        fsync_tree(self._marks, self._root)
        for mark in older:
            mark.unlink(missing_ok=True)
        for fingerprint, file in self._unmarked:
            self._add(fingerprint, file.directory, file.name, file.size, self._clock())
        self._unmarked.clear()

    def due_in_s(self) -> float | None:
        """Return the time in seconds until the next roll; None if nothing is kept."""
        if not self._groups:
            return None
        return max(0.0, min(group.since_s for group in self._groups.values()) + self._interval_s - self._clock())

    def publish(self, everything: bool = False) -> None:
        """Finish the rolls that were begun. Then roll the files that are due, or all kept files if ``everything``."""
        for name in self._bundles.names():
            if name.startswith(_ROLL):
                self._finish(name)
        oldest_s = self._clock() - self._interval_s
        for key, group in list(self._groups.items()):
            if everything or group.since_s <= oldest_s or sum(group.sizes.values()) >= self._target_bytes:
                self._roll(*key)

    def retract(self, query_id: str, unwanted: Callable[[str], bool]) -> None:
        """Remove the kept files whose names are unwanted, and finish the rolls that were begun without these files.

        Called before ``restore``.
        """
        self._query_id = query_id
        for name in self._bundles.names():
            if name.startswith(_ROLL):
                first = self._bundles.first_file(name)
                if first is None:
                    self._bundles.discard(name)
                else:
                    self._bundles.split(name, self._final(name, first), unwanted)
        for _, path in self._kept_files():
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
        """Return the path at which a roll becomes visible. ``first``: any of its files."""
        return (first.parent / rolled_name(self._query_id, name.rpartition("-")[0], first.name)).as_posix()

    def _kept_files(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(self._kept.rglob("*") if self._kept.exists() else ()):
            folder = path.relative_to(self._kept).parts[0]
            if is_kept_folder(folder) and is_final_name(path.name) and path.is_file() and not path.is_symlink():
                yield folder, path

    def _add(self, fingerprint: str, directory: str, name: str, size: int, since_s: float) -> None:
        group = self._groups.setdefault((fingerprint, directory), _KeptGroup())
        group.sizes[name] = size
        group.since_s = min(group.since_s, since_s)
