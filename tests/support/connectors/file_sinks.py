"""Kit for tests of file sinks: sinks of every format, visible files, and crashes at any moment."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files import bundles as file_bundles
from penstock.connectors.files.csv.sink import csv_sink_format
from penstock.connectors.files.format import FileFormat, LineFormat
from penstock.connectors.files.json.sink import json_sink_format
from penstock.connectors.files.parquet.sink import parquet_sink_format
from penstock.connectors.files.partitions import partitioning
from penstock.connectors.files.sink import FileSink, FileSizes
from penstock.connectors.files.text.sink import text_sink_format
from penstock.connectors.option_texts import OptionTexts

SCHEMA = pa.schema({"a": pa.int64()})
PARTITIONED = pa.schema({"a": pa.int64(), "p": pa.string()})
KINDS = ("parquet", "csv", "json", "text")


def file_format(kind: str, schema: pa.Schema = SCHEMA, **options: str) -> FileFormat:
    texts = OptionTexts(f"{kind} sink", options)
    if kind == "csv":
        return csv_sink_format(schema, texts, "UTC")
    if kind == "json":
        return json_sink_format(schema, texts, "UTC", True)
    if kind == "text":
        return text_sink_format(pa.schema({"a": pa.string()}), texts)
    return parquet_sink_format(schema, texts)


def sink(
    path: Path, kind: str = "parquet", partitioned: bool = False, sizes: FileSizes | None = None, **options: str
) -> FileSink:
    parts = partitioning(PARTITIONED, ["p"], "UTC", True, False) if partitioned else None
    return FileSink(str(path), file_format(kind, **options), parts, sizes)


def batch(*values: int, kind: str = "parquet", partitions: int = 0) -> pa.RecordBatch:
    """Rows of ``a``; with partitions also of ``p``, which is made of ``a``."""
    numbers = pa.array(values, pa.int64())
    columns = {"a": numbers.cast(pa.string()) if kind == "text" else numbers}
    if partitions:
        columns["p"] = pa.array([f"x/{value % partitions}" for value in values], pa.string())
    return pa.RecordBatch.from_pydict(columns)


def visible_files(out: Path) -> list[Path]:
    """Return the files that Spark and pyarrow's datasets would list."""
    found = []
    for directory, directories, names in os.walk(out):
        directories[:] = sorted(name for name in directories if not name.startswith(("_", ".")))
        found += [Path(directory) / name for name in sorted(names) if not name.startswith(("_", "."))]
    return found


def visible(out: Path, made: FileFormat) -> Counter[int]:
    """Every value of ``a`` that a reader sees; a half-written file fails."""
    seen: Counter[int] = Counter()
    for path in visible_files(out):
        seen.update(_values(path, made))
    return seen


def _values(path: Path, made: FileFormat) -> list[int]:
    if not isinstance(made, LineFormat):
        values: list[int] = pq.read_table(path, partitioning=None)["a"].to_pylist()
        return values
    with made.open(path, "rb") as file:
        content = file.read()
    header = made.header()
    assert content.startswith(header)
    assert content.endswith(b"\n")
    texts = content[len(header) :].decode().splitlines()
    return [int("".join(c for c in text if c.isdigit())) for text in texts]


class Killed(BaseException):
    """Stands for the end of the process."""


class Deaths:
    """Counts file operations while it is ``armed``, and ends the process at the ones that ``strikes`` chooses."""

    OPERATIONS = ("rename", "mkdir", "unlink", "rmdir", "link")

    def __init__(self) -> None:
        self.armed = False
        self.turn = 0
        self.strikes: Callable[[int], bool] = lambda turn: False
        self.after = False

    def _next(self) -> bool:
        # Another test's query may still end in this process.
        armed = self.armed and not threading.current_thread().name.startswith("penstock-driver-")
        self.turn += armed
        return armed and self.strikes(self.turn)

    def wrapped(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def perform(*args: Any, **kwargs: Any) -> Any:
            strikes = self._next()
            if strikes and not self.after:
                raise Killed
            result = operation(*args, **kwargs)
            if strikes:
                raise Killed
            return result

        return perform

    def merge(self, made: FileFormat, sources: Sequence[Path], target: Path) -> None:
        """May leave half a file."""
        strikes = self._next()
        made.merge(sources, target)
        if strikes:
            content = target.read_bytes()
            target.write_bytes(content if self.after else content[: len(content) // 2])
            raise Killed


class _Mortal:
    """A format whose merges may be killed, and otherwise like the other one."""

    def __init__(self, made: FileFormat, deaths: Deaths) -> None:
        self._made = made
        self._deaths = deaths

    def merge(self, sources: Sequence[Path], target: Path) -> None:
        self._deaths.merge(self._made, sources, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


@contextmanager
def mortal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deaths]:
    """File operations, merges included, may kill."""
    deaths = Deaths()
    with monkeypatch.context() as patch:
        for name in Deaths.OPERATIONS:
            patch.setattr(os, name, deaths.wrapped(getattr(os, name)))
        patch.setattr(os, "fsync", deaths.wrapped(lambda descriptor: None))  # of no use against a mere death
        make = file_bundles.Bundles.__init__

        def init(self: file_bundles.Bundles, root: Path, made: FileFormat, *more: str) -> None:
            make(self, root, _Mortal(made, deaths), *more)  # type: ignore[arg-type]

        patch.setattr(file_bundles.Bundles, "__init__", init)
        yield deaths
