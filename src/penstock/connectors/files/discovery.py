"""Which files there are to read, look by look: every one once, in order, within the user's bounds.

What a file's rows look like is not known here.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from penstock.connectors.files.clean_source import WaitingFile, parse_cleaner
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

LONGEST_REST_S = 2.0
"""Between two listings, however long they take."""

_UNCLEANED = "uncleaned"
"""Key of a state: the files that are still to be cleaned."""
LOOK_FILES = 256
"""Splits of one look where the user gives no bound: what is found and not yet read is stored in every snapshot."""


class FileDiscovery:
    """The driver's side of a source of files; its methods are those of ``Source``. A split is a file; its ``spec`` has
    path, size and modification time, and where the columns have such the values of its directories, which begin below
    ``root``.

    Args:
        path: a file, a directory or a pattern with wildcards.
        texts: the options; those about listing are taken.
        columns: whose partitions the directories give.

    Raises:
        ConfigError: an option of listing that is not supported.
    """

    def __init__(self, path: str, texts: OptionTexts, columns: FileColumns) -> None:
        self.path = local_path(path)
        self._options = parse_listing_options(texts)
        base = texts.optional("basePath")
        # Root of the partition directories. Spark uses the option for a pattern only.
        self._base = local_path(base) if base and is_glob(self.path) else ""
        self._listing = Listing(self.path, self._options)
        self.paths = ListedPaths(self.path, self._options)
        self._cleaner = parse_cleaner(texts, self.path, self.paths.admits)
        self._columns = columns
        self._memory = _Memory()

    def __getstate__(self) -> dict[str, Any]:
        """Readers need nothing of what the driver's side has seen."""
        return self.__dict__ | {"_memory": _Memory()}

    def discover(self, state: Plain) -> Discovery:
        memory = self._memory
        if state is None or state is not memory.state:
            memory.restore(cast("dict[str, Any] | None", state))
        if not memory.unread:
            memory.unread.extend(self._look())
        chosen = self._within_bounds(memory.unread)
        splits = [self._split(file) for file in chosen]
        more = bool(memory.unread)
        if self._options.latest_first and more:
            memory.unread.clear()  # what comes meanwhile goes first
        memory.seen = memory.seen.adding([self._key(file.path) for file in chosen], chosen)
        if self._options.max_age_ms is not None and not (more and self._unbounded):
            memory.seen = memory.seen.forgetting(self._options.max_age_ms)
        if self._cleaner is not None:
            memory.uncleaned = self._cleaner.waiting(memory.uncleaned, chosen)
        memory.remember()
        return Discovery(splits, memory.state, finished=memory.frozen is not None and not more)

    def having_read(self, files: Mapping[str, int]) -> Plain:
        """The state in which these were handed out: modification time in milliseconds by path."""
        found = [FoundFile(modified_ms, path, 0, 0) for path, modified_ms in files.items()]
        seen = SeenFiles().adding([self._key(path) for path in files], found)
        if self._options.max_age_ms is not None:
            seen = seen.forgetting(self._options.max_age_ms)
        return seen.state()

    def splits_of(self, paths: Sequence[str]) -> list[Split]:
        """Return splits of these files, in reading order. Raise FileNotFoundError for the first missing one."""
        roots = dict(self._listing.names())
        missing = next((path for path in paths if path not in roots), None)
        if missing is not None:
            raise FileNotFoundError(f"{missing} no longer exists")
        return [self._split(file) for file in sorted(found_files([(path, roots[path]) for path in paths]))]

    def not_listed(self, paths: Iterable[str]) -> list[str]:
        """Those that exist and are none of this source's files. Raises DataError as a look does."""
        listed = {path for path, _ in self._listing.names()}
        return [path for path in paths if path not in listed and os.path.exists(path)]

    def handed_out(self, state: Plain) -> list[FoundFile]:
        """The files that are there now and that a source with this state does not hand out any more, in reading order.
        Raises DataError as a look does."""
        seen = SeenFiles() if state is None else SeenFiles.restored(cast("dict[str, Any]", state))
        files = sorted(found_files(list(dict.fromkeys(self._listing.names()))))
        held = seen.holds([self._key(file.path) for file in files]).tolist()
        return [f for f, is_held in zip(files, held, strict=True) if is_held or f.modified_ms < seen.horizon_ms]

    def takes_away(self) -> str:
        return "" if self._cleaner is None else "cleanSource takes files away that are read; leave it off"

    def freeze(self) -> None:
        self._memory.frozen = list(self._listing.names())
        self._memory.unread.clear()  # it may lack what came between its listing and this one

    def committed(self, state: Plain) -> None:
        if self._cleaner is not None and state is not None:
            self._cleaner.clean(waiting_files(cast("dict[str, Any]", state)))

    @property
    def _unbounded(self) -> bool:
        """A look hands out whatever is there, in as many parts as it takes."""
        return self._options.max_files is None and self._options.max_bytes is None

    def _look(self) -> list[FoundFile]:
        """Every file that is there and was not handed out, in reading order."""
        memory = self._memory
        if memory.frozen is None:
            with memory.rested():
                unknown = dict.fromkeys(self._listing.names(memory.known))
        else:
            unknown = dict.fromkeys(pair for pair in memory.frozen if pair[0] not in memory.known)
        if self._cleaner is not None and self._listing.from_spark_sink():
            raise NotSupported(
                f"cleanSource: {self.path} was written by Spark's file sink, whose log lists its files; leave it off"
            )
        pairs = list(unknown)
        held = memory.seen.holds([self._key(path) for path, _ in pairs]).tolist()
        memory.known.update(path for (path, _), is_held in zip(pairs, held, strict=True) if is_held)
        fresh = found_files([pair for pair, is_held in zip(pairs, held, strict=True) if not is_held])
        fresh = [file for file in fresh if file.modified_ms >= memory.seen.horizon_ms]
        if self._options.name_only:
            fresh = list({self._key(file.path): file for file in sorted(fresh, reverse=True)}.values())
        return sorted(fresh, reverse=self._options.latest_first)

    def _within_bounds(self, files: deque[FoundFile]) -> list[FoundFile]:
        """Takes them off ``files``."""
        chosen: list[FoundFile] = []
        most = LOOK_FILES if self._options.max_files is None else self._options.max_files
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


def waiting_files(state: Mapping[str, Any]) -> list[WaitingFile]:
    """Return the files of a state that are still to be cleaned.

    Raises:
        CorruptSnapshot: the value in the state is not a list of files.
    """
    try:
        return convert(state.get(_UNCLEANED, []), list[WaitingFile])
    except msgspec.ValidationError as error:
        raise CorruptSnapshot(f"the state of a file source has no list of files to clean: {error!s:.200}") from error


def without_waiting(state: Plain) -> Plain:
    """Return the state without the files that are still to be cleaned."""
    content = cast("dict[str, Plain] | None", state)
    return None if content is None else {name: value for name, value in content.items() if name != _UNCLEANED}


class _Memory:
    """What the driver's side knows between two looks; all of it follows from the state and the directory.

    Attributes:
        state: the last one returned. Any other that is given begins anew.
        seen: the files that were handed out.
        uncleaned: those of them that wait to be cleaned away.
        unread: listed and new, not handed out yet, in order.
        known: paths that a listing has shown to be seen, so that the next one need not hash them.
        frozen: what was there when the source was frozen.
    """

    def __init__(self) -> None:
        self.frozen: list[tuple[str, str]] | None = None
        self._next_listing_s = 0.0
        self.restore(None)

    @contextmanager
    def rested(self) -> Iterator[None]:
        """Listing takes a quarter of the time at most: large directories cost latency, and not the driver."""
        time.sleep(max(0.0, self._next_listing_s - time.monotonic()))
        begin_s = time.monotonic()
        yield
        end_s = time.monotonic()
        self._next_listing_s = end_s + min(3 * (end_s - begin_s), LONGEST_REST_S)

    def restore(self, state: dict[str, Any] | None) -> None:
        self.state: Plain = None
        self.seen = SeenFiles() if state is None else SeenFiles.restored(state)
        self.uncleaned = [] if state is None else waiting_files(state)
        self.unread: deque[FoundFile] = deque()
        self.known: set[str] = set()

    def remember(self) -> None:
        content = self.seen.state()
        if self.uncleaned:
            content[_UNCLEANED] = cast("list[Plain]", [list(waiting) for waiting in self.uncleaned])
        self.state = content
