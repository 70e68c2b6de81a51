"""Check of the paths in a snapshot against the paths that a source lists, because a snapshot may be forged.

``Listing`` finds files. ``ListedPaths`` decides by the text of a path if this source's listing can have found it. Only
files with such paths are read, deleted or archived.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.connectors.files.hadoop_globs import is_glob, plain_globs
from penstock.connectors.files.listing import (
    SPARK_METADATA,
    ListingOptions,
    is_hidden,
    spark_sink_files,
    spark_sink_log,
)

MAX_PATH = 4096
"""Longest path in characters, as in the operating system.

It bounds the time for matching, because the user's pattern may backtrack over a forged path.
"""


@dataclass(frozen=True)
class ListedPaths:
    """Paths that a source lists.

    Args:
        path: an absolute path, or an absolute pattern with wildcards.
        options: options of listing.
    """

    path: str
    options: ListingOptions

    def admits(self, path: str) -> bool:
        """Return True if a listing can have found this path.

        The file system is read only for output of Spark's own file sink, whose log may have files anywhere.
        """
        if len(path) > MAX_PATH or "\0" in path or not os.path.isabs(path) or os.path.normpath(path) != path:
            return False
        parts = path.split("/")
        if SPARK_METADATA not in parts and any(self._is_below(root, parts) for root in self._roots()):
            return True
        log = spark_sink_log(self.path)
        return log is not None and path in spark_sink_files(log)

    def _roots(self) -> list[list[str]]:
        return [plain.split("/") for plain in (plain_globs(self.path) if is_glob(self.path) else [self.path])]

    def _is_below(self, root: Sequence[str], parts: Sequence[str]) -> bool:
        root = [part for number, part in enumerate(root) if part or not number]  # "/" is one name, not two
        if len(parts) < len(root) or not all(map(self._matches, parts, root)):
            return False
        *directories, name = parts[len(root) :] or parts[-1:]
        entered = all(not is_hidden(one) and (self.options.recursive or "=" in one) for one in directories)
        pattern = self.options.name_pattern
        return entered and not is_hidden(name) and (pattern is None or pattern.match(name) is not None)

    def _matches(self, part: str, pattern: str) -> bool:
        if not is_glob(self.path):
            return part == pattern
        return fnmatch.fnmatchcase(part, pattern)
