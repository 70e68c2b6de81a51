"""Files in a directory as a stream: each new file is a split."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from penstock.connectors.base import Discovery, Source, SourceReader, Split
from penstock.connectors.csv_files import csv_format
from penstock.connectors.file_listing import FoundFile, ListingOptions, list_files, parse_listing_options
from penstock.connectors.json_files import json_format
from penstock.connectors.local_files import local_path
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.parquet_files import parquet_format
from penstock.errors import ConfigError, DataError
from penstock.operators.base import Plain

ReadFile = Callable[[str, int], Iterator[pa.RecordBatch]]
"""``read(path, skip_rows)``: the file's rows from the given one on, in small batches of the source's schema."""

FORMATS: dict[str, Callable[[pa.Schema, OptionTexts, str], ReadFile]] = {
    "parquet": parquet_format,
    "csv": csv_format,
    "json": json_format,
}


class FileSource(Source):
    """``spark.readStream.format("parquet" | "csv" | "json")``.

    A file is read once it is seen, whole, in its order. It must not change until it has been read: its size and
    modification time are part of the split, and a reader that finds others, or no file, raises ``DataError``.

    Args:
        format: ``parquet``, ``csv`` or ``json``.
        path: a file, a directory or a pattern with wildcards.
        schema: the columns to read. With the corrupt-record column among them, malformed rows are kept there.
        options: Spark's options of the format and of file streams.
        time_zone: the session's, for texts without a zone of their own.

    Raises:
        ConfigError: an option that is not supported; the message lists those that are.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 - as Spark calls it
        path: str,
        schema: pa.Schema,
        options: Mapping[str, str] | None = None,
        time_zone: str = "UTC",
    ) -> None:
        if format not in FORMATS:
            raise ConfigError(f"file source of format {format}: choose one of {', '.join(FORMATS)}")
        texts = OptionTexts(f"{format} source", options or {})
        texts.without_effect("path")
        self.schema = schema
        self._path = local_path(path)
        self._listing = parse_listing_options(texts)
        self._read = FORMATS[format](schema, texts, texts.text("timeZone", time_zone))
        self._frozen: list[FoundFile] | None = None
        texts.finish()

    def describe(self) -> str:
        return f"FileStreamSource[file:{self._path}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        seen = SeenFiles(state, self._listing)
        files = list_files(self._path, self._listing) if self._frozen is None else self._frozen
        fresh = [file for file in files if seen.is_new(file)]
        chosen = _within_bounds(fresh, self._listing)
        for file in chosen:
            seen.add(file)
        finished = self._frozen is not None and len(chosen) == len(fresh)
        return Discovery([_split(file) for file in chosen], seen.state(), finished)

    def freeze(self) -> None:
        self._frozen = list_files(self._path, self._listing)

    def create_reader(self) -> SourceReader:
        return FileReader(self._read)


def _split(file: FoundFile) -> Split:
    spec: dict[str, Plain] = {"path": file.path, "size": file.size, "modified_ns": file.modified_ns}
    return Split(f"{file.path}@{file.modified_ns}", spec)


def _within_bounds(files: Sequence[FoundFile], options: ListingOptions) -> Sequence[FoundFile]:
    if options.max_files is not None:
        return files[: options.max_files]
    if options.max_bytes is None:
        return files
    total = 0
    chosen: list[FoundFile] = []
    for file in files:
        total += file.size
        if chosen and total > options.max_bytes:
            break
        chosen.append(file)
    return chosen


class SeenFiles:
    """Which files were handed out. Those much older than the newest are forgotten, and older ones ignored (Spark's
    ``maxFileAge``), which bounds the state of a directory that is cleaned up.
    """

    def __init__(self, state: Plain, options: ListingOptions) -> None:
        self._options = options
        content: dict[str, Any] = {"seen": {}, "horizon_ms": 0} if state is None else cast("dict[str, Any]", state)
        self._seen: dict[str, int] = dict(content["seen"])
        self._horizon_ms: int = content["horizon_ms"]

    def is_new(self, file: FoundFile) -> bool:
        return file.modified_ms >= self._horizon_ms and self._key(file) not in self._seen

    def add(self, file: FoundFile) -> None:
        self._seen[self._key(file)] = file.modified_ms

    def state(self) -> Plain:
        if self._options.max_age_ms is not None and self._seen:
            horizon = max(self._seen.values()) - self._options.max_age_ms
            self._horizon_ms = max(self._horizon_ms, horizon)
            self._seen = {key: ms for key, ms in self._seen.items() if ms >= self._horizon_ms}
        return {"seen": cast("dict[str, Plain]", self._seen), "horizon_ms": self._horizon_ms}

    def _key(self, file: FoundFile) -> str:
        return os.path.basename(file.path) if self._options.name_only else file.path


class FileReader(SourceReader):
    """Reads file after file. A position is the number of rows emitted of the file."""

    def __init__(self, read: ReadFile) -> None:
        self._read = read
        self._waiting: deque[Split] = deque()
        self._split: Split | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        self._rows = 0

    def add_split(self, split: Split) -> None:
        self._waiting.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        while self._split is not None or self._waiting:
            if self._split is None:
                self._start(self._waiting.popleft())
            batch = self._next_batch()
            if batch is None:
                self._split = None
                continue
            if batch.num_rows > max_rows:
                self._rest = batch.slice(max_rows)
                batch = batch.slice(0, max_rows)
            self._rows += batch.num_rows
            return batch
        return None

    def _start(self, split: Split) -> None:
        path = cast("str", split.spec["path"])
        _check_unchanged(split)
        self._rows = cast("int", split.position.get("rows", 0))
        self._batches = self._read(path, self._rows)
        self._split = split

    def _next_batch(self) -> pa.RecordBatch | None:
        """The next non-empty batch of the current file, or None at its end."""
        assert self._split is not None
        if self._rest is not None:
            batch, self._rest = self._rest, None
            return batch
        try:
            for batch in self._batches:
                if batch.num_rows:
                    return batch
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"cannot read {self._split.spec['path']}: {error}") from error
        # A file that changed meanwhile may have been read half old, half new.
        _check_unchanged(self._split)
        return None

    def snapshot(self) -> Sequence[Split]:
        if self._split is None:
            return tuple(self._waiting)
        current = Split(self._split.split_id, self._split.spec, {"rows": self._rows})
        return (current, *self._waiting)

    def close(self) -> None:
        self._batches, self._rest, self._split = iter(()), None, None


def _check_unchanged(split: Split) -> None:
    path = cast("str", split.spec["path"])
    try:
        status = os.stat(path)
    except OSError as error:
        raise DataError(f"input file {path} was listed but cannot be read now: {error}") from error
    if (status.st_size, status.st_mtime_ns) != (split.spec["size"], split.spec["modified_ns"]):
        raise DataError(f"input file {path} changed after it was listed; files must appear whole and stay as they are")
