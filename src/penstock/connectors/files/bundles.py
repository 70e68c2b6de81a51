"""Bundles of small files: files are collected, merged and published so that each row is visible exactly once.

A bundle is a directory below ``bundles``. Its name ends with its state. Its subdirectories are those in which the rows
will be visible::

    <name>.open/day=1/part-...      files are moved in, each by a rename
    <name>.sealed/day=1/part-...    all files are in. They are merged to a file next to them, which is renamed to its
                                    final name: the rows become visible
    <name>.split/day=1/part-...     the files cannot be merged (written with other options): each gets its final name
    <name>.done/...                 the rows are visible, the remaining files are removed

Each change of state is one rename of the directory, and a file is in one directory at a time. So after a crash the
state determines the remaining steps. A driver that has lost the output may work on the same bundle as its successor.
Then one of them is ahead, and the next rename of the other one fails. That driver can neither add files to a sealed
bundle nor publish from a published or split bundle, because the merged file is inside the bundle until it is published.

Each rename is made durable before the next step, so a power failure also leaves one of these states.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path, PurePosixPath

from penstock.connectors.files.format import FileFormat
from penstock.connectors.files.private_directory import HOME
from penstock.connectors.files.sink_plan import is_bundle, is_final_name
from penstock.connectors.local_files import fsync_directory, fsync_file, fsync_tree, make_folders

_MERGED = ".merged-"


class State(Enum):
    """State of a bundle. The last state comes first, because ``Bundles.state`` tests the states in this order."""

    DONE = "done"
    SPLIT = "split"
    SEALED = "sealed"
    OPEN = "open"


class Bundles:
    """Bundles of one output directory. Not thread-safe.

    The name of a bundle ends with the fingerprint of its files' format. All methods raise ``OSError`` or
    ``pa.ArrowException``, and may then be called again. ``FileNotFoundError`` is also raised if another driver was
    faster.
    """

    def __init__(self, root: Path, file_format: FileFormat, private: str = HOME) -> None:
        self._root = root
        self._format = file_format
        self._private = root / private
        self._home = self._private / "bundles"

    def state(self, name: str) -> State | None:
        """Return the state of a bundle; None if it does not exist."""
        return next((state for state in State if self._path(name, state).exists()), None)

    def names(self) -> list[str]:
        """Return the names of all bundles."""
        found = {path.stem for path in self._home.iterdir()} if self._home.exists() else set()
        return sorted(filter(is_bundle, found))

    def first_file(self, name: str) -> Path | None:
        """Return one of the files of a bundle, relative to the output directory; None if it has none."""
        state = self.state(name)
        top = self._path(name, state or State.OPEN)
        files = (path for path in top.rglob("*") if is_final_name(path.name) and path.is_file())
        found = next(files, None)
        return None if found is None else found.relative_to(top)

    def collect(self, name: str, moves: Mapping[Path, str]) -> None:
        """Move files into a bundle, which may have files already.

        Args:
            moves: final path of each file, relative to the output directory. All final paths are in one directory.
                Files that do not exist are ignored.
        """
        home = self._path(name, State.OPEN)
        for source, target in moves.items():
            path = home / target
            make_folders(path.parent, self._private)
            if source.exists():
                os.rename(source, path)
        for directory in sorted({(home / target).parent for target in moves.values()}):
            fsync_tree(directory, self._root)
        for directory in sorted({source.parent for source in moves}):
            if directory.exists():
                fsync_directory(directory)

    def has_file(self, name: str, path: str) -> bool:
        """Return True if an open bundle has the file with the final path ``path``, relative to the output directory."""
        return (self._path(name, State.OPEN) / path).exists()

    def finish(self, name: str, final: str) -> None:
        """Finish a bundle from any state: publish its rows and remove it.

        Args:
            final: path of the merged file, relative to the output directory. Files of another format are not merged;
                they are published under their own names.
        """
        while (state := self.state(name)) is not None:
            can_merge = name.endswith(self._format.fingerprint) or (self._root / final).exists()
            match state:
                case State.OPEN | State.SEALED if not can_merge:
                    self._set_state(name, state, State.SPLIT)
                case State.OPEN:
                    self._set_state(name, state, State.SEALED)
                case State.SEALED:
                    self._publish(name, final)
                case State.SPLIT:
                    self._publish_each(name)
                case State.DONE:
                    shutil.rmtree(self._path(name, state))

    def discard(self, name: str) -> None:
        """Remove a bundle with its files. None of them may be visible under its own name."""
        while (state := self.state(name)) is not None:
            if state is not State.DONE:
                self._set_state(name, state, State.DONE)
            shutil.rmtree(self._path(name, State.DONE), ignore_errors=True)  # another driver may also remove it

    def split(self, name: str, final: str, unwanted: Callable[[str], bool]) -> None:
        """Finish a bundle without merging its files.

        Args:
            final: as for ``finish``. If this file is visible, it has all rows of the bundle.
            unwanted: returns True for the names of files to remove instead of publishing them.
        """
        while (state := self.state(name)) is not None:
            if state is State.DONE:
                shutil.rmtree(self._path(name, state), ignore_errors=True)
            elif state is State.SPLIT:
                for path in sorted(self._path(name, state).rglob("*")):
                    if path.is_file() and unwanted(path.name):
                        path.unlink(missing_ok=True)
                self._publish_each(name)
            else:
                self._set_state(name, state, State.DONE if (self._root / final).exists() else State.SPLIT)

    def remove_empty(self, name: str) -> None:
        """Remove a bundle without files. Raise OSError if a file is moved into it in the meantime."""
        while (state := self.state(name)) is not None:
            top = self._path(name, state)
            if state is State.DONE:
                shutil.rmtree(top)
                continue
            for directory in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                directory.rmdir()
            top.rmdir()

    def _publish(self, name: str, final: str) -> None:
        target = self._root / final
        if not target.exists():
            directory = self._path(name, State.SEALED) / PurePosixPath(final).parent
            merged = directory / f"{_MERGED}{secrets.token_hex(8)}"
            sources = sorted(path for path in directory.iterdir() if not path.name.startswith(_MERGED))
            self._format.merge(sources, merged)
            fsync_file(merged)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(merged, target)
        fsync_tree(target.parent, self._root)
        self._set_state(name, State.SEALED, State.DONE)

    def _publish_each(self, name: str) -> None:
        top = self._path(name, State.SPLIT)
        for path in sorted(path for path in top.rglob("*") if path.is_file()):
            if not path.name.startswith(_MERGED):
                target = self._root / path.relative_to(top)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(path, target)
                fsync_tree(target.parent, self._root)
        self._set_state(name, State.SPLIT, State.DONE)

    def _path(self, name: str, state: State) -> Path:
        return self._home / f"{name}.{state.value}"

    def _set_state(self, name: str, before: State, after: State) -> None:
        os.rename(self._path(name, before), self._path(name, after))
        fsync_directory(self._home)
