"""Listing of the input files of a directory, by Spark's rules.

Names are hidden if they start with ``.`` or end in ``._COPYING_``, or if they start with ``_`` and have no ``=``. A
wildcard may match a hidden directory: files below it are then visible, unless it is called ``_spark_metadata``. If
Spark's file sink wrote to a path without wildcards, only the files in its log there (``_spark_metadata``) exist, as for
Spark's readers.

Listings cache nothing. Like Spark, every discovery lists the directory again, because on some file systems, such as a
mounted object store, the modification time of a directory is not meaningful.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from penstock.connectors.files.hadoop_globs import glob_regex, is_glob, matching_paths
from penstock.connectors.local_files import local_path
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError, DataError

SPARK_METADATA = "_spark_metadata"
_AGE = re.compile(r"\s*+([0-9]{1,18})\s*+(us|ms|s|m|min|h|d)?\s*+\Z")
_AGE_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_DISALLOWED = ("modifiedBefore", "modifiedAfter")


@dataclass(frozen=True, order=True)
class FoundFile:
    """File that a listing found. Files are ordered as they are read: by modification time in milliseconds, then path.

    Attributes:
        root: the source's path, or the match of its pattern, that contains the file.
    """

    modified_ms: int
    path: str
    size: int
    modified_ns: int
    root: str = field(default="", compare=False)


@dataclass(frozen=True)
class ListingOptions:
    """Options of file stream sources.

    Attributes:
        max_files: limit for the files of one discovery; None: no limit.
        max_bytes: limit for the bytes of one discovery, which the first file alone may exceed; None: no limit.
        latest_first: discover the newest files first.
        name_only: files with the same name are the same file, in any directory.
        max_age_ms: ignore and forget files that are older than the newest file by more than this; None: never.
        name_pattern: ``pathGlobFilter`` as a regular expression; None: all names match.
        recursive: list all subdirectories. Their names are then not used as partition values.
    """

    max_files: int | None
    max_bytes: int | None
    latest_first: bool
    name_only: bool
    max_age_ms: int | None
    name_pattern: re.Pattern[str] | None
    recursive: bool


def parse_listing_options(options: OptionTexts) -> ListingOptions:
    for name in _DISALLOWED:
        if options.has_refused(name):
            raise ConfigError(
                f"option {name} is not allowed in file stream sources; filter on _metadata.file_modification_time"
            )
    latest_first = options.flag("latestFirst", False)
    max_files = options.count("maxFilesPerTrigger")
    max_bytes = options.count("maxBytesPerTrigger")
    if max_files is not None and max_bytes is not None:
        raise ConfigError("maxFilesPerTrigger and maxBytesPerTrigger cannot both be set")
    age = options.text("maxFileAge", "7d")
    match = _AGE.match(age.lower())
    if match is None:
        raise options.bad("maxFileAge", age, "write for example 7d or 12h")
    # Spark ignores the age if older files may be read after newer ones.
    ages = latest_first and (max_files is not None or max_bytes is not None)
    pattern = options.optional("pathGlobFilter")
    options.without_effect("maxCachedFiles", "discardCachedInputRatio")
    return ListingOptions(
        max_files,
        max_bytes,
        latest_first,
        options.flag("fileNameOnly", False),
        None if ages else int(int(match[1]) * _AGE_MS[match[2]]),
        None if pattern is None else re.compile(glob_regex(pattern)),
        options.flag("recursiveFileLookup", False),
    )


@dataclass(frozen=True)
class Listing:
    """Listing of a path and of the partition directories (``name=value``) below it; of all directories if recursive.

    Args:
        path: a plain path, or a pattern with wildcards.
        options: options of listing.
    """

    path: str
    options: ListingOptions

    def names(self, known: Set[str] = frozenset()) -> Iterator[tuple[str, str]]:
        """Yield path and root of every visible file, unordered. A file may be repeated if roots of a pattern overlap.

        Args:
            known: paths of files to leave out.

        Raises:
            DataError: a path without wildcards does not exist or cannot be listed.
        """
        pattern = self.options.name_pattern
        for root in self._roots():
            try:
                for name, path in self._visible(root, known):
                    if not is_hidden(name) and (pattern is None or pattern.match(name)):
                        yield path, root
            except PermissionError as error:
                raise DataError(f"directory {error.filename or root} cannot be listed: {error.strerror}") from error

    def from_spark_sink(self) -> bool:
        """Return True if Spark's file sink wrote to the path."""
        return spark_sink_log(self.path) is not None

    def _roots(self) -> list[str]:
        if is_glob(self.path):
            found = matching_paths(self.path)
        elif os.path.exists(self.path):
            found = [self.path]
        else:
            raise DataError(f"input path {self.path} does not exist")
        return [root for root in found if SPARK_METADATA not in root.split("/")]

    def _visible(self, root: str, known: Set[str]) -> Iterator[tuple[str, str]]:
        log = spark_sink_log(self.path)
        if not os.path.isfile(root) and log is None:
            yield from self._walk(root, known)
            return
        for path in [root] if log is None else spark_sink_files(log):
            if path not in known:
                yield os.path.basename(path), path

    def _walk(self, directory: str, known: Set[str]) -> Iterator[tuple[str, str]]:
        try:
            entries = os.scandir(directory)
        except FileNotFoundError:
            return  # it was removed after its parent was listed
        below = []
        with entries:
            for entry in entries:
                path = entry.path
                if path in known:
                    continue
                if entry.is_dir():
                    below.append(entry)
                else:
                    yield entry.name, path
        for entry in below:
            if is_hidden(entry.name):
                continue
            if self.options.recursive or "=" in entry.name:
                yield from self._walk(entry.path, known)


def found_files(names: Sequence[tuple[str, str]]) -> list[FoundFile]:
    """Return the files that still exist, unordered. ``names``: pairs of path and root."""
    found = []
    for path, root in names:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue  # it was removed after the listing
        found.append(FoundFile(status.st_mtime_ns // 1_000_000, path, status.st_size, status.st_mtime_ns, root))
    return found


def is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def spark_sink_log(path: str) -> Path | None:
    """Return the log of Spark's file sink at a path; None if there is none or, as in Spark, if it has wildcards."""
    log = Path(path, SPARK_METADATA)
    return log if not is_glob(path) and log.is_dir() else None


def spark_sink_files(metadata: Path) -> list[str]:
    """Return the files that Spark's file sink committed: those of its newest compacted batch and of all later ones."""
    batches = {int(p.name): p for p in metadata.iterdir() if p.name.isdigit()}
    compacted = {int(p.stem): p for p in metadata.glob("*.compact") if p.stem.isdigit()}
    newest = max(compacted, default=-1)
    logs = [compacted[newest]] if newest >= 0 else []
    logs += [batches[number] for number in sorted(batches) if number > newest]
    files: dict[str, None] = {}
    for log in logs:
        lines = log.read_text().splitlines()
        if not lines or lines[0] != "v1":
            raise DataError(f"{log} is not a log of Spark's file sink of version 1")
        for line in lines[1:]:
            entry = json.loads(line)
            if entry["action"] == "delete":
                files.pop(local_path(entry["path"]), None)
            else:
                files[local_path(entry["path"])] = None
    return list(files)
