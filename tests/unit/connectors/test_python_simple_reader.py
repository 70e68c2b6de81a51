"""Simple stream readers: what they are told, looks that are asked for, and an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.connectors.base import SourceReader
from penstock.connectors.python.source import PythonSource
from tests.support.connectors import user_sources
from tests.support.connectors.kits import discover_all, new_reader, read_rows, stored

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
SPARK_SCHEMA = StructType().add("n", "long").add("s", "string").json()

Open = Callable[..., SourceReader]


def write(file: Path, text: str) -> None:
    """Replace the content at once: a reader on another thread never sees an empty file."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "end"
    write(path, "8")
    return path


@pytest.fixture
def opened(file: Path) -> Iterator[Open]:
    """``opened(cls, split=...)``: a reader at the start or at a split; all are closed at the end."""
    readers = []

    def open_reader(cls: Any, split: Any = None) -> SourceReader:
        source = PythonSource("simple", cls, {"file": str(file)}, SCHEMA, SPARK_SCHEMA)
        reader = new_reader(source)
        readers.append(reader)
        reader.add_split(discover_all(source)[0] if split is None else split)
        return reader

    yield open_reader
    for reader in readers:
        reader.close()


def numbers(reader: SourceReader, **limits: int) -> list[int]:
    return [row[0] for row in read_rows(reader, **limits)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_idle_means_that_a_look_found_nothing_that_began_when_asked(file: Path, opened: Open) -> None:
    reader = opened(user_sources.Simple)
    assert numbers(reader) == list(range(8))
    for end in range(9, 30):
        write(file, str(end))  # within the pause of the look before
        reader.refresh()
        assert not reader.caught_up()
        assert numbers(reader) == [end - 1]


def test_the_end_of_a_range_is_a_position_of_its_own(opened: Open) -> None:
    reader = opened(user_sources.Simple)
    numbers(reader)
    (split,) = reader.snapshot()
    assert split.position == {"start": {"at": 8}}


def test_the_user_is_told_what_lies_before_a_complete_snapshot(file: Path, opened: Open) -> None:
    reader = opened(user_sources.ToldSimple)
    assert numbers(reader, limit=4) == [0, 1, 2, 3]
    within = reader.snapshot()
    numbers(reader)
    told = file.with_suffix(".told")
    assert not told.exists()
    reader.committed(within)
    until(told.exists)
    reader.committed(reader.snapshot())
    until(lambda: told.read_text() == "3\n8\n")
    reader.committed(reader.snapshot())
    reader.refresh()
    numbers(reader)
    assert told.read_text() == "3\n8\n", "nothing is said twice"


def test_a_frozen_reader_reads_once_more_and_stays_where_it_is(file: Path, opened: Open) -> None:
    reader = opened(user_sources.Simple)
    reader.freeze()
    got = numbers(reader)
    assert got in ([0, 1, 2], list(range(6)), list(range(8))), "reads before it was heard do not count"
    write(file, "20")
    reader.refresh()
    assert numbers(reader) == []
    assert reader.caught_up()
    (split,) = reader.snapshot()
    assert split.position == {"start": {"at": len(got)}}, "a later run goes on there"
    assert numbers(opened(user_sources.Simple, stored(split))) == list(range(len(got), 20))


def test_a_frozen_reader_that_prepares_reads_all_that_was_there(file: Path, opened: Open) -> None:
    reader = opened(user_sources.PreparedSimple)
    assert numbers(reader, limit=4) == [0, 1, 2, 3]
    reader.freeze()
    until(file.with_suffix(".frozen").exists)
    write(file, "20")
    assert numbers(reader) == [4, 5, 6, 7]
    reader.refresh()
    assert numbers(reader) == []
    assert reader.caught_up()


def test_a_frontier_is_passed_after_the_rows_of_a_read_that_began_after_it(file: Path, opened: Open) -> None:
    write(file, "33")
    reader = opened(user_sources.Simple)
    reader.begin_frontier()
    assert reader.frontier_passed() is False, "nothing was read yet"
    seen: list[int] = []
    for end in (33, 66, 99):
        write(file, str(end))
        reader.begin_frontier()
        while not reader.frontier_passed():
            batch = reader.poll(1, 0)
            seen += [] if batch is None else batch.column(0).to_pylist()
            time.sleep(0.001)
        assert (seen[-1] + 1) % 3 == 0, "a read brings three numbers, as a batch of Spark does"
    assert seen == list(range(len(seen)))
