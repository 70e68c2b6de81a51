"""Which files a directory holds for a reader, by Spark's rules, and which of them are new.

Hidden are names that start with ``_`` (unless they hold a ``=``) or ``.``, and those that end in ``._COPYING_``. Where
Spark's own file sink wrote (``_spark_metadata``), its log alone says which files exist, as it does for Spark's readers.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.connectors.local_files import local_path
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError, DataError, NotYet

SPARK_METADATA = "_spark_metadata"
_GLOB = re.compile(r"[*?\[{]")
_AGE = re.compile(r"^\s*(\d+)\s*(ms|s|m|min|h|d)?\s*$")
_AGE_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}


@dataclass(frozen=True, order=True)
class FoundFile:
    """Ordered as files are read: by modification time (Spark's milliseconds), then path."""

    modified_ms: int
    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True)
class ListingOptions:
    """How files are found.

    Attributes:
        max_files: at most so many splits of one look.
        max_bytes: a look ends before the file that would exceed it (the first file always goes).
        latest_first: newest files first.
        name_only: a file is known by its name, in whatever directory it lies.
        max_age_ms: files older than the newest by more are ignored and forgotten.
        name_pattern: ``pathGlobFilter`` as a regular expression, or None.
        recursive: also subdirectories.
    """

    max_files: int | None
    max_bytes: int | None
    latest_first: bool
    name_only: bool
    max_age_ms: int | None
    name_pattern: re.Pattern[str] | None
    recursive: bool


def parse_listing_options(options: OptionTexts) -> ListingOptions:
    latest_first = options.flag("latestFirst", False)
    max_files = options.count("maxFilesPerTrigger")
    max_bytes = options.count("maxBytesPerTrigger")
    if max_files is not None and max_bytes is not None:
        raise ConfigError("maxFilesPerTrigger and maxBytesPerTrigger cannot both be set")
    age = options.text("maxFileAge", "7d")
    match = _AGE.match(age.lower())
    if match is None:
        raise options.bad("maxFileAge", age, "write for example 7d or 12h")
    # Spark ignores the age where old files may still be waiting behind newer ones.
    ages = latest_first and (max_files is not None or max_bytes is not None)
    pattern = options.optional("pathGlobFilter")
    options.only("cleanSource", ["off"])
    options.only("ignoreCorruptFiles", ["false"])
    options.only("ignoreMissingFiles", ["false"])
    options.without_effect("maxCachedFiles", "discardCachedInputRatio")
    return ListingOptions(
        max_files,
        max_bytes,
        latest_first,
        options.flag("fileNameOnly", False),
        None if ages else int(match[1]) * _AGE_MS[match[2]],
        None if pattern is None else re.compile(glob_regex(pattern)),
        options.flag("recursiveFileLookup", False),
    )


def list_files(path: str, options: ListingOptions) -> list[FoundFile]:
    """Every file that a reader of ``path`` sees now, in reading order.

    Raises:
        DataError: a path without wildcards does not exist.
        NotYet: directories like ``day=1``, whose names are columns to Spark.
    """
    found: dict[str, FoundFile] = {}
    for root in _roots(local_path(path)):
        for name in _visible(root, options):
            try:
                status = os.stat(name)
            except FileNotFoundError:
                continue  # gone since it was listed: it never was there
            found[name] = FoundFile(status.st_mtime_ns // 1_000_000, name, status.st_size, status.st_mtime_ns)
    return sorted(found.values(), reverse=options.latest_first)


def _roots(path: str) -> list[str]:
    if not _GLOB.search(path):
        if not os.path.exists(path):
            raise DataError(f"input path {path} does not exist")
        return [path]
    return sorted({match for plain in _without_braces(path) for match in glob.glob(plain)})


def _without_braces(pattern: str) -> list[str]:
    """``a{b,c}`` as ``ab`` and ``ac``: Hadoop's wildcards know braces, Python's do not."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [plain for choice in match[1].split(",") for plain in _without_braces(head + choice + tail)]


def glob_regex(pattern: str) -> str:
    """A Hadoop file name pattern as an anchored regular expression."""
    result, depth = "", 0
    for piece in re.findall(r"\\.|\[[^\]]*\]|.", pattern):
        if piece == "*":
            result += ".*"
        elif piece == "?":
            result += "."
        elif piece == "{":
            result, depth = result + "(?:", depth + 1
        elif piece == "}" and depth:
            result, depth = result + ")", depth - 1
        elif piece == "," and depth:
            result += "|"
        elif len(piece) > 1:
            result += piece.replace("[!", "[^", 1)
        else:
            result += re.escape(piece)
    return result + r"\Z"


def _visible(root: str, options: ListingOptions) -> Iterator[str]:
    if os.path.isfile(root):
        names: Iterator[str] = iter([root])
    elif os.path.isdir(os.path.join(root, SPARK_METADATA)):
        names = iter(spark_sink_files(Path(root, SPARK_METADATA)))
    else:
        names = _walk(root, options.recursive)
    for name in names:
        base = os.path.basename(name)
        if not hidden(base) and (options.name_pattern is None or options.name_pattern.match(base)):
            yield name


def hidden(name: str) -> bool:
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def _walk(root: str, recursive: bool) -> Iterator[str]:
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if not entry.is_dir():
                yield entry.path
            elif hidden(entry.name):
                continue
            elif recursive:
                yield from _walk(entry.path, recursive)
            elif "=" in entry.name:
                raise NotYet(
                    f"{entry.path}: directories whose names are column values are not read yet; "
                    "set recursiveFileLookup to read the files without these columns"
                )


def spark_sink_files(metadata: Path) -> list[str]:
    """The files that Spark's file sink committed: its newest compacted batch and every batch after it."""
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
