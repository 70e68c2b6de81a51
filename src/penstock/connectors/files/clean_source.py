"""Spark's ``cleanSource``: deletes or archives input files that a complete snapshot has read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.connectors.files.hadoop_globs import glob_regex
from penstock.connectors.files.listing import FoundFile
from penstock.connectors.local_files import fsync_directory, local_path
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import CorruptSnapshot
from penstock.logs import get_logger
from penstock.model.manifest import Count, Microseconds
from penstock.snapshots.store.local_files import folder_of

log = get_logger(__name__)

_LEAST_DEPTH = 3
"""Minimum depth of an archive directory, as in Spark: /a/b/c.

In a less deep directory an archived file could match a source's pattern.
"""


class UncleanedFile(NamedTuple):
    """Entry of a state for a file that must still be cleaned."""

    path: str
    size: Count
    modified_ns: Microseconds  # only its range of 64 bits matters


class SourceCleaner:
    """Cleaner of input files: deletes or archives them.

    A file that is already cleaned, or missing, is no error. Any other failure is logged and the file stays, as in
    Spark: input that is not cleaned does no harm. Uncleaned files are part of the discovery state, so that the next
    driver cleans them after a crash. A file is touched only if its size and modification time are still those that were
    listed, and only if the source's path lists it, because a stored state may be forged. No link below ``root`` is
    followed: a link may have replaced a listed directory.

    Args:
        root: the directory that the source's path names, up to its first wildcard.
        admits: returns True if the source's path and options list a path.
        archive: directory to which files are moved. A file keeps its whole path below it. None: files are deleted.
    """

    def __init__(self, root: str, admits: Callable[[str], bool], archive: str | None) -> None:
        self._root = root
        self._admits = admits
        self._archive = archive
        self._cleaned: set[tuple[str, int]] = set()

    def updated(self, before: Sequence[UncleanedFile], discovered: Sequence[FoundFile]) -> list[UncleanedFile]:
        """Return the list for the next state: ``before`` without cleaned files, followed by the discovered files."""
        kept = [file for file in before if (file.path, file.modified_ns) not in self._cleaned]
        self._cleaned.clear()
        return kept + [UncleanedFile(file.path, file.size, file.modified_ns) for file in discovered]

    def clean(self, uncleaned: Sequence[UncleanedFile]) -> None:
        """Clean these files. They must be read completely. Never raises OSError."""
        for path, size, modified_ns in uncleaned:
            if (path, modified_ns) in self._cleaned:
                continue
            if not self._admits(path):
                log.warning("%s is not cleaned: the state lists it for cleaning, but the source does not list it", path)
                self._cleaned.add((path, modified_ns))
                continue
            try:
                self._clean(path, size, modified_ns)
            except CorruptSnapshot:
                log.warning("input file %s is read but not cleaned: a link below %s leads to it", path, self._root)
            except OSError as error:
                log.warning("input file %s is read but could not be cleaned away: %s", path, error)
            self._cleaned.add((path, modified_ns))

    def _clean(self, path: str, size: int, modified_ns: int) -> None:
        try:
            with folder_of(self._root, os.path.relpath(path, self._root), change=True) as (folder, name):
                status = os.stat(name, dir_fd=folder)
                if (status.st_size, status.st_mtime_ns) != (size, modified_ns):
                    log.warning("input file %s changed after it was read; it is left where it is", path)
                elif self._archive is None:
                    os.unlink(name, dir_fd=folder)
                else:
                    self._to_archive(path, folder, name)
        except FileNotFoundError:
            return

    def _to_archive(self, path: str, folder: int, name: str) -> None:
        target = Path(f"{self._archive}{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            log.warning("input file %s is not archived: %s exists already", path, target)
            return
        os.rename(name, target, src_dir_fd=folder)
        fsync_directory(target.parent)


def parse_cleaner(options: OptionTexts, path: str, admits: Callable[[str], bool]) -> SourceCleaner | None:
    """Parse the option ``cleanSource`` and its archive directory. Return None if cleaning is off.

    Args:
        path: the source's path, which may have wildcards.
        admits: returns True if the source lists a path.

    Raises:
        ConfigError: the archive directory is missing, is not deep enough, matches the source or is on another device.
    """
    mode = options.text("cleanSource", "off").strip().lower()
    archive = options.optional("sourceArchiveDir")
    if mode == "off":
        return None
    if mode == "delete":
        return SourceCleaner(_root_of(path), admits, None)
    if mode != "archive":
        raise options.bad("cleanSource", mode, "choose archive, delete or off")
    if archive is None:
        raise options.bad("cleanSource", mode, "it needs sourceArchiveDir")
    directory = local_path(archive)
    if len(_parts(directory)) < _LEAST_DEPTH:
        raise options.bad("sourceArchiveDir", archive, f"it must lie at least {_LEAST_DEPTH} levels deep, like /a/b/c")
    if archive_matches_source(directory, path):
        raise options.bad(
            "sourceArchiveDir", archive, f"what is archived could be read from {path} again; choose a path beside it"
        )
    if _device(Path(directory)) != _device(Path(_root_of(path))):
        raise options.bad("sourceArchiveDir", archive, f"it is on another file system than {path}")
    return SourceCleaner(_root_of(path), admits, directory)


def _root_of(path: str) -> str:
    fixed = re.split(r"[*?\[{]", path)[0]
    return fixed if os.path.isdir(fixed) else os.path.dirname(fixed)


def archive_matches_source(directory: str, pattern: str) -> bool:
    """Return True if archived files may match the source's pattern.

    As in Spark, both paths are cut to the depth of the shorter one and compared part by part.
    """
    pairs = zip(_parts(directory), _parts(pattern), strict=False)
    return all(re.match(glob_regex(source_part), part) for part, source_part in pairs)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _device(path: Path) -> int:
    """Return the device of the path, or of its nearest existing parent directory."""
    while not path.exists():
        path = path.parent
    return path.stat().st_dev
