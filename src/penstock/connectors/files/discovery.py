"""Discovery of input files: lists directories and returns each new file once, in order, within the user's limits.

Discovery does not depend on the format of the files.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from penstock.connectors.files.clean_source import UncleanedFile, parse_cleaner
from penstock.connectors.files.columns import FileColumns
from penstock.connectors.files.hadoop_globs import is_glob
from penstock.connectors.files.listed_paths import ListedPaths
from penstock.connectors.files.listing import FoundFile, Listing, found_files, parse_listing_options
from penstock.connectors.files.seen_files import SeenFiles
from penstock.connectors.local_files import local_path
from penstock.connectors.option_texts import OptionTexts
from penstock.decoding import convert
from penstock.errors import CorruptSnapshot, NotSupported
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split

MAX_LISTING_PAUSE_S = 2.0
"""Longest pause between two listings."""

_UNCLEANED = "uncleaned"
"""Key in a state of the files that must still be cleaned."""
MAX_DISCOVERED_FILES = 256
"""Limit for the files of one discovery if the user sets none. Every snapshot stores the discovered unread files."""


class FileDiscovery:
    """Driver side of a source of files, with methods like those of ``Source``.

    Each split is a file. Its ``spec`` has the path, size and modification time. If there are partition columns, it also
    has their values, from the names of the directories below ``root``.

    Args:
        path: a file, a directory or a pattern with wildcards.
        texts: the options. Only those about listing and cleaning are read.
        columns: the columns of the source, including partition columns.

    Raises:
        ConfigError: an option about listing or cleaning is not supported.
    """

    def __init__(self, path: str, texts: OptionTexts, columns: FileColumns) -> None:
        self.path = local_path(path)
        self._options = parse_listing_options(texts)
        base = texts.optional("basePath")
        # Root of the partition directories. Spark uses the option only if the path is a pattern.
        self._base = local_path(base) if base and is_glob(self.path) else ""
        self._listing = Listing(self.path, self._options)
        self.paths = ListedPaths(self.path, self._options)
        self._cleaner = parse_cleaner(texts, self.path, self.paths.admits)
        self._columns = columns
        self._progress = _DiscoveryProgress()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the progress of discovery, which readers do not need."""
        return self.__dict__ | {"_progress": _DiscoveryProgress()}

    def discover(self, state: Plain) -> Discovery:
        progress = self._progress
        if state is None or state is not progress.state:
            progress.restore(cast("dict[str, Any] | None", state))
        if not progress.unread:
            progress.unread.extend(self._list_new())
        chosen = self._within_bounds(progress.unread)
        splits = [self._split(file) for file in chosen]
        more = bool(progress.unread)
        if self._options.latest_first and more:
            progress.unread.clear()  # list again before the next discovery: newer files come first
        progress.seen = progress.seen.with_files([self._key(file.path) for file in chosen], chosen)
        if self._options.max_age_ms is not None and not (more and self._unbounded):
            progress.seen = progress.seen.without_old(self._options.max_age_ms)
        if self._cleaner is not None:
            progress.uncleaned = self._cleaner.updated(progress.uncleaned, chosen)
        progress.update_state()
        return Discovery(splits, progress.state, finished=progress.frozen is not None and not more)

    def state_after_reading(self, files: Mapping[str, int]) -> Plain:
        """Return the state after the discovery of these files. ``files``: modification time in milliseconds by path."""
        found = [FoundFile(modified_ms, path, 0, 0) for path, modified_ms in files.items()]
        seen = SeenFiles().with_files([self._key(path) for path in files], found)
        if self._options.max_age_ms is not None:
            seen = seen.without_old(self._options.max_age_ms)
        return seen.state()

    def splits_of(self, paths: Sequence[str]) -> list[Split]:
        """Return splits of these files, in reading order. Raise FileNotFoundError for the first missing one."""
        roots = dict(self._listing.names())
        missing = next((path for path in paths if path not in roots), None)
        if missing is not None:
            raise FileNotFoundError(f"{missing} no longer exists")
        return [self._split(file) for file in sorted(found_files([(path, roots[path]) for path in paths]))]

    def not_listed(self, paths: Iterable[str]) -> list[str]:
        """Return the existing paths that this source does not list. Raise DataError as ``discover`` does."""
        listed = {path for path, _ in self._listing.names()}
        return [path for path in paths if path not in listed and os.path.exists(path)]

    def discovered_files(self, state: Plain) -> list[FoundFile]:
        """Return the existing files that a source with this state does not discover again, in reading order.

        Raise DataError as ``discover`` does.
        """
        seen = SeenFiles() if state is None else SeenFiles.restored(cast("dict[str, Any]", state))
        files = sorted(found_files(list(dict.fromkeys(self._listing.names()))))
        held = seen.contains([self._key(file.path) for file in files]).tolist()
        return [f for f, is_held in zip(files, held, strict=True) if is_held or f.modified_ms < seen.horizon_ms]

    def removes_input(self) -> str:
        return "" if self._cleaner is None else "cleanSource takes files away that are read; leave it off"

    def freeze(self) -> None:
        self._progress.frozen = list(self._listing.names())
        self._progress.unread.clear()  # it may lack files that arrived between its listing and this one

    def committed(self, state: Plain) -> None:
        if self._cleaner is not None and state is not None:
            self._cleaner.clean(uncleaned_files(cast("dict[str, Any]", state)))

    @property
    def _unbounded(self) -> bool:
        """True if the user limits neither the files nor the bytes of one discovery."""
        return self._options.max_files is None and self._options.max_bytes is None

    def _list_new(self) -> list[FoundFile]:
        """List the files that are not discovered yet, in reading order."""
        progress = self._progress
        if progress.frozen is None:
            with progress.paced():
                unknown = dict.fromkeys(self._listing.names(progress.known))
        else:
            unknown = dict.fromkeys(pair for pair in progress.frozen if pair[0] not in progress.known)
        if self._cleaner is not None and self._listing.from_spark_sink():
            raise NotSupported(
                f"cleanSource: {self.path} was written by Spark's file sink, whose log lists its files; leave it off"
            )
        pairs = list(unknown)
        held = progress.seen.contains([self._key(path) for path, _ in pairs]).tolist()
        progress.known.update(path for (path, _), is_held in zip(pairs, held, strict=True) if is_held)
        fresh = found_files([pair for pair, is_held in zip(pairs, held, strict=True) if not is_held])
        fresh = [file for file in fresh if file.modified_ms >= progress.seen.horizon_ms]
        if self._options.name_only:
            fresh = list({self._key(file.path): file for file in sorted(fresh, reverse=True)}.values())
        return sorted(fresh, reverse=self._options.latest_first)

    def _within_bounds(self, files: deque[FoundFile]) -> list[FoundFile]:
        """Remove the files of the next discovery from ``files`` and return them."""
        chosen: list[FoundFile] = []
        most = MAX_DISCOVERED_FILES if self._options.max_files is None else self._options.max_files
        total = 0
        while files and len(chosen) < most:
            total += files[0].size
            if chosen and self._options.max_bytes is not None and total > self._options.max_bytes:
                break
            chosen.append(files.popleft())
        return chosen

    def _key(self, path: str) -> str:
        return os.path.basename(path) if self._options.name_only else path

    def _split(self, file: FoundFile) -> Split:
        spec: dict[str, Plain] = {"path": file.path, "size": file.size, "modified_ns": file.modified_ns}
        root = self._base or file.root
        partition = {} if self._options.recursive else self._columns.partition_of(file.path, root)
        if partition:
            spec["partition"] = cast("dict[str, Plain]", partition)
            spec["root"] = root
        return Split(f"{file.path}@{file.modified_ns}", spec)


def uncleaned_files(state: Mapping[str, Any]) -> list[UncleanedFile]:
    """Return the files in a state that must still be cleaned.

    Raises:
        CorruptSnapshot: the value in the state is not a list of files.
    """
    try:
        return convert(state.get(_UNCLEANED, []), list[UncleanedFile])
    except msgspec.ValidationError as error:
        raise CorruptSnapshot(f"the state of a file source has no list of files to clean: {error!s:.200}") from error


def without_uncleaned(state: Plain) -> Plain:
    """Return the state without the files that must still be cleaned."""
    content = cast("dict[str, Plain] | None", state)
    return None if content is None else {name: value for name, value in content.items() if name != _UNCLEANED}


class _DiscoveryProgress:
    """Progress of discovery. It can be restored from the state and the directory.

    Attributes:
        state: the state that was returned last. If ``discover`` gets another state, it restores the progress from it.
        seen: the discovered files.
        uncleaned: discovered files that must still be cleaned.
        unread: listed new files that are not discovered yet, in order.
        known: paths that were found in ``seen``, so that the next listing need not hash them.
        frozen: paths and roots of the files that existed at the freeze; None if the source is not frozen.
    """

    def __init__(self) -> None:
        self.frozen: list[tuple[str, str]] | None = None
        self._next_listing_s = 0.0
        self.restore(None)

    @contextmanager
    def paced(self) -> Iterator[None]:
        """Delay a listing if the last one ended recently.

        The pause after a listing is three times its duration, at most ``MAX_LISTING_PAUSE_S``. So a large directory
        increases the latency rather than the load.
        """
        time.sleep(max(0.0, self._next_listing_s - time.monotonic()))
        begin_s = time.monotonic()
        yield
        end_s = time.monotonic()
        self._next_listing_s = end_s + min(3 * (end_s - begin_s), MAX_LISTING_PAUSE_S)

    def restore(self, state: dict[str, Any] | None) -> None:
        self.state: Plain = None
        self.seen = SeenFiles() if state is None else SeenFiles.restored(state)
        self.uncleaned = [] if state is None else uncleaned_files(state)
        self.unread: deque[FoundFile] = deque()
        self.known: set[str] = set()

    def update_state(self) -> None:
        content = self.seen.state()
        if self.uncleaned:
            content[_UNCLEANED] = cast("list[Plain]", [list(uncleaned) for uncleaned in self.uncleaned])
        self.state = content
