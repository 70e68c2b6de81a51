"""Small files that become one: collected, merged and published so that no reader ever sees a row twice or not at all.

A bundle is a directory below ``bundles`` whose name ends with what state it is in; inside, the files lie in
the subdirectory in which their rows are to become visible::

    <name>.open/day=1/part-...      files are being moved in, each by a rename
    <name>.sealed/day=1/part-...    all are in; they are merged into a file beside them, which is then renamed to its
                                    final name: the rows become visible
    <name>.split/day=1/part-...     cannot be merged (written with other options): each is renamed to its own name
    <name>.done/...                 the rows are visible: what is left is removed

Every step from state to state is one rename of the directory, and a file is in one place at a time. So after a crash
the state says what is left to do, and of two drivers (one of them out of its office, and about to find out) that do it
at the same time one is ahead, and the other's next rename fails: it can neither add to a sealed bundle, nor publish
from one that was published or split, because the merged file lies inside it until it is published.

Names are made durable before what builds on them, so that a power cut leaves one of these states, too.
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
    """In the order in which they are looked for: the furthest first."""

    DONE = "done"
    SPLIT = "split"
    SEALED = "sealed"
    OPEN = "open"


class Bundles:
    """The bundles of one output directory. Not thread-safe.

    A bundle's name ends with the fingerprint of its files' format. All methods raise ``OSError``
    (``FileNotFoundError`` also where another driver was quicker) or ``pa.ArrowException``, and may be called again
    after that.
    """

    def __init__(self, root: Path, file_format: FileFormat, private: str = HOME) -> None:
        self._root = root
        self._format = file_format
        self._private = root / private
        self._home = self._private / "bundles"

    def state(self, name: str) -> State | None:
        """None: there is no such bundle (any more)."""
        return next((state for state in State if self._path(name, state).exists()), None)

    def names(self) -> list[str]:
        """Of every bundle there is."""
        found = {path.stem for path in self._home.iterdir()} if self._home.exists() else set()
        return sorted(filter(is_bundle, found))

    def first_file(self, name: str) -> Path | None:
        """One of the files of a bundle, relative to the output directory; None if it has none."""
        state = self.state(name)
        top = self._path(name, state or State.OPEN)
        files = (path for path in top.rglob("*") if is_final_name(path.name) and path.is_file())
        found = next(files, None)
        return None if found is None else found.relative_to(top)

    def collect(self, name: str, moves: Mapping[Path, str]) -> None:
        """Move files in, beside those that are in already.

        Args:
            moves: from where to where they belong, relative to the output directory: all into one directory. Files
                that do not exist are passed over.
        """
        home = self._path(name, State.OPEN)
        for source, target in moves.items():
            place = home / target
            make_folders(place.parent, self._private)
            if source.exists():
                os.rename(source, place)
        for directory in sorted({(home / target).parent for target in moves.values()}):
            fsync_tree(directory, self._root)
        for directory in sorted({source.parent for source in moves}):
            if directory.exists():
                fsync_directory(directory)

    def holds(self, name: str, path: str) -> bool:
        """Whether an open bundle has the file that belongs to ``path``, relative to the output directory."""
        return (self._path(name, State.OPEN) / path).exists()

    def finish(self, name: str, final: str) -> None:
        """Bring a bundle, in whatever state it is, to its end: the rows are visible and nothing is left of it.

        Args:
            final: where the rows become visible as one file, relative to the output directory. If the files were
                written in another format than this one's they become visible one by one, under their own names.
        """
        while (state := self.state(name)) is not None:
            alike = name.endswith(self._format.fingerprint) or (self._root / final).exists()
            match state:
                case State.OPEN | State.SEALED if not alike:
                    self._turn(name, state, State.SPLIT)
                case State.OPEN:
                    self._turn(name, state, State.SEALED)
                case State.SEALED:
                    self._publish(name, final)
                case State.SPLIT:
                    self._publish_each(name)
                case State.DONE:
                    shutil.rmtree(self._path(name, state))

    def give_up(self, name: str) -> None:
        """Remove a bundle with its files, of which none may be visible but as the file they were merged to."""
        while (state := self.state(name)) is not None:
            if state is not State.DONE:
                self._turn(name, state, State.DONE)
            shutil.rmtree(self._path(name, State.DONE), ignore_errors=True)  # another driver may be at it, too

    def split(self, name: str, final: str, unwanted: Callable[[str], bool]) -> None:
        """Bring a bundle to its end without merging anything any more.

        Args:
            final: as for ``finish``; if it is visible, it has all the rows.
            unwanted: by name: files that are removed instead of becoming visible.
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
                self._turn(name, state, State.DONE if (self._root / final).exists() else State.SPLIT)

    def remove_empty(self, name: str) -> None:
        """A bundle without files; one into which a file comes meanwhile stays: that is an error."""
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
            place = self._path(name, State.SEALED) / PurePosixPath(final).parent
            merged = place / f"{_MERGED}{secrets.token_hex(8)}"
            sources = sorted(path for path in place.iterdir() if not path.name.startswith(_MERGED))
            self._format.merge(sources, merged)
            fsync_file(merged)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(merged, target)
        fsync_tree(target.parent, self._root)
        self._turn(name, State.SEALED, State.DONE)

    def _publish_each(self, name: str) -> None:
        top = self._path(name, State.SPLIT)
        for path in sorted(path for path in top.rglob("*") if path.is_file()):
            if not path.name.startswith(_MERGED):
                target = self._root / path.relative_to(top)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(path, target)
                fsync_tree(target.parent, self._root)
        self._turn(name, State.SPLIT, State.DONE)

    def _path(self, name: str, state: State) -> Path:
        return self._home / f"{name}.{state.value}"

    def _turn(self, name: str, before: State, after: State) -> None:
        os.rename(self._path(name, before), self._path(name, after))
        fsync_directory(self._home)
