"""Which paths a listing of a source can give, decided by their text: what a location says of files may be forged.

``Listing`` finds files; ``ListedPaths`` says of a path that was read from a snapshot whether this source's listing can
have found it. Only such a path is read, deleted or archived.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.connectors.file_listing import SPARK_METADATA, ListingOptions, hidden, spark_sink_files
from penstock.connectors.hadoop_globs import is_glob, matching_paths, plain_globs

MAX_PATH = 4096
"""Characters, as the system has it: the pattern of the user's that a forged name is held against may backtrack."""


@dataclass(frozen=True)
class ListedPaths:
    """The paths that a source's pattern lists.

    Args:
        path: a plain path, or a pattern with wildcards; absolute.
        options: how files are found.
    """

    path: str
    options: ListingOptions

    def admits(self, path: str) -> bool:
        """Return whether a listing can have found this path. Looks at the file system only for what Spark's own file
        sink wrote, whose log may list files anywhere."""
        if len(path) > MAX_PATH or "\0" in path or not os.path.isabs(path) or os.path.normpath(path) != path:
            return False
        parts = path.split("/")
        if any(self._is_below(root, parts) for root in self._roots()):
            return True
        there = matching_paths(self.path) if is_glob(self.path) else [self.path]
        logs = (Path(root, SPARK_METADATA) for root in there)
        return any(path in spark_sink_files(log) for log in logs if log.is_dir())

    def _roots(self) -> list[list[str]]:
        return [plain.split("/") for plain in (plain_globs(self.path) if is_glob(self.path) else [self.path])]

    def _is_below(self, root: Sequence[str], parts: Sequence[str]) -> bool:
        root = [part for number, part in enumerate(root) if part or not number]  # "/" is one name, not two
        if len(parts) < len(root) or not all(map(self._matches, parts, root)):
            return False
        *directories, name = parts[len(root) :] or parts[-1:]
        entered = all(not hidden(one) and (self.options.recursive or "=" in one) for one in directories)
        pattern = self.options.name_pattern
        return entered and not hidden(name) and (pattern is None or pattern.match(name) is not None)

    def _matches(self, part: str, wanted: str) -> bool:
        if not is_glob(self.path):
            return part == wanted
        return fnmatch.fnmatchcase(part, wanted) and (wanted.startswith(".") or not part.startswith("."))
