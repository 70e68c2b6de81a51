"""Staged rows and the table sink's commits, without Spark: crashes at every step, and what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from penstock.connectors.base import SinkCommitter, SinkContext
from penstock.connectors.files.private_directory import HOME
from penstock.connectors.spark import table_sink
from penstock.connectors.spark.staged_rows import StagedRows
from penstock.connectors.spark.table_sink import TableSink
from penstock.errors import CommitFailed, CommitUnknown, ConfigError, NotSupported, SinkError
from penstock.model.commits import EpochCommit
from penstock.testing.conformance import check_sink
from tests.support.connectors.kits import stage

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
COLUMNS = StructType().add("k", "long").add("v", "string").json()


class _Crash(BaseException):
    """The driver dies here."""


class Writer:
    """Fake of Spark's writer: one Parquet file per value of ``k % 2``, in its partition's directory."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.partitions: list[Mapping[str, str | None]] = []
        self.columns: list[str] = []
        self.refused: tuple[str, ...] = ()
        self.fails = 0

    def open(self) -> str:
        self.location.mkdir(exist_ok=True)
        return str(self.location)

    def check(self, columns: str) -> None:
        if columns in self.refused:
            raise ConfigError("the rows do not fit")

    def write(self, files: Sequence[str], columns: str, directory: str) -> None:
        self.columns.append(columns)
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        for part in sorted({row["c0"] % 2 for row in rows}):
            folder = Path(directory) / f"half={part}"
            folder.mkdir(parents=True)
            mine = [{"k": row["c0"], "v": row["c1"]} for row in rows if row["c0"] % 2 == part]
            pq.write_table(pa.Table.from_pylist(mine, SCHEMA), folder / f"part-00000-{uuid.uuid4()}.parquet")
            if self.fails:
                self.fails -= 1
                raise OSError("no space left")
        (Path(directory) / "_SUCCESS").touch()

    def published(self, partitions: Sequence[Mapping[str, str | None]]) -> None:
        self.partitions += [p for p in partitions if p not in self.partitions]


def batch(*keys: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": key, "v": f"v{key}"} for key in keys], schema=SCHEMA)


def visible(location: Path) -> list[dict[str, Any]]:
    """Return the files that a reader of the table sees: names that begin with ``_`` are hidden."""
    files = [p for p in sorted(location.rglob("*.parquet")) if not any(part.startswith("_") for part in p.parts)]
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def keys(location: Path) -> list[int]:
    return sorted(row["k"] for row in visible(location))


def sink_at(tmp_path: Path, writer: Writer | None = None, columns: str = COLUMNS) -> tuple[TableSink, Writer]:
    writer = writer or Writer(tmp_path / "table")
    sink = TableSink("t", SCHEMA, columns, lambda: writer)
    sink.stage_in(str(tmp_path / "staged" / "sink-0"))
    return sink, writer


def opened(sink: TableSink, query_id: str = "query") -> SinkCommitter:
    committer = sink.create_committer()
    committer.open(query_id)
    return committer


def staged_epoch(sink: TableSink, epoch: int, *keys: int, generation: int = 0) -> EpochCommit:
    return stage(sink, {0: batch(*keys[::2]), 1: batch(*keys[1::2])}, epoch, generation or epoch, "query")


def test_the_kit_s_crashes_and_repeated_commits(tmp_path: Path) -> None:
    def make(number: int) -> tuple[TableSink, Any]:
        folder = tmp_path / str(number)
        folder.mkdir()
        sink, writer = sink_at(folder)
        return sink, lambda: visible(writer.location)

    check_sink(make, [batch(*range(first, first + 7)) for first in range(0, 42, 7)], schedules=8)


STEPS = ("write", "list", "rename ready", "rename 1", "rename 2", "published", "marker", "remove")


@pytest.mark.parametrize("step", STEPS)
def test_a_commit_that_a_crash_interrupts_is_finished_by_the_next_driver(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, writer = sink_at(tmp_path)
    opened(sink).commit(staged_epoch(sink, 1, 1, 2))
    permit = staged_epoch(sink, 2, 3, 4, 5, 6)

    with monkeypatch.context() as patch:
        _crash_at(step, patch, writer)
        with pytest.raises(_Crash):
            opened(sink).commit(permit)
    before = keys(writer.location)
    assert before in ([1, 2], [1, 2, 4, 6], [1, 2, 3, 4, 5, 6])
    for _ in range(2):  # handed over again, and again
        opened(sink).commit(permit)
        assert keys(writer.location) == [1, 2, 3, 4, 5, 6]
    assert writer.partitions == [{"half": "0"}, {"half": "1"}]
    assert sorted(os.listdir(writer.location / HOME)) == ["query-sink-0.json"]


def _crash_at(step: str, patch: pytest.MonkeyPatch, writer: Writer) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise _Crash

    def before(number: int, original: Any) -> Any:
        calls = [0]

        def call(*args: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] == number:
                raise _Crash
            return original(*args, **options)

        return call

    match step:
        case "write":
            patch.setattr(writer, "write", crash)
        case "list":
            patch.setattr(table_sink, "replace_durably", before(1, table_sink.replace_durably))
        case "rename ready" | "rename 1" | "rename 2":
            patch.setattr(table_sink.os, "rename", before(1 + ("ready", "1", "2").index(step[7:]), os.rename))
        case "published":
            patch.setattr(writer, "published", crash)
        case "marker":
            patch.setattr(table_sink, "replace_durably", before(2, table_sink.replace_durably))
        case "remove":
            patch.setattr(table_sink.shutil, "rmtree", before(1, shutil.rmtree))


def test_a_failed_write_leaves_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    sink, writer = sink_at(tmp_path)
    committer = opened(sink)
    permit = staged_epoch(sink, 1, 1, 2, 3)
    writer.fails = 1
    with pytest.raises(CommitFailed, match=r"table t in .*, epoch 1: OSError: no space left"):
        committer.commit(permit)
    assert (keys(writer.location), os.listdir(writer.location / HOME)) == ([], [])
    committer.commit(permit)
    assert keys(writer.location) == [1, 2, 3]


def test_a_file_that_somebody_removed_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, writer = sink_at(tmp_path)
    permit = staged_epoch(sink, 1, 1, 2)
    with monkeypatch.context() as patch:
        _crash_at("rename 1", patch, writer)
        with pytest.raises(_Crash):
            opened(sink).commit(permit)
    next((writer.location / HOME).rglob("part-*")).unlink()
    with pytest.raises(CommitUnknown, match="someone removed it"):
        opened(sink).commit(permit)


def test_two_queries_may_write_one_table(tmp_path: Path) -> None:
    sink, writer = sink_at(tmp_path)
    other, _ = sink_at(tmp_path / "other", writer)
    permit = staged_epoch(sink, 5, 1, 2)
    opened(sink).commit(permit)
    theirs = staged_epoch(other, 5, 3, 4)
    opened(other, "another").commit(EpochCommit("another", 5, theirs.messages))
    assert keys(writer.location) == [1, 2, 3, 4]


def test_staged_files_go_when_the_log_says_so_and_not_before(tmp_path: Path) -> None:
    sink, _ = sink_at(tmp_path)
    committer = opened(sink)
    permits = [staged_epoch(sink, epoch, epoch, epoch + 1) for epoch in (1, 2)]
    for permit in permits:
        committer.commit(permit)
    left = lambda: sorted(path.name for path in sink.directory.iterdir())  # noqa: E731
    named = [[msgspec.json.decode(m, type=StagedRows).file for m in p.messages.values()] for p in permits]
    committer.abandon(2)
    assert left() == sorted(named[0] + named[1]), "they may come again: the log does not have them"
    committer.commits_logged(1)
    assert left() == sorted(named[1])

    successor = opened(sink)  # the log said 1, so 2 is handed over again
    successor.commit(permits[1])
    successor.abandon(2)
    assert left() == sorted(named[1])
    successor.commits_logged(2)
    assert left() == []


def test_what_nobody_names_goes_with_its_generation(tmp_path: Path) -> None:
    sink, _ = sink_at(tmp_path)
    staged_epoch(sink, 1, 1, 2, generation=3)
    kept = staged_epoch(sink, 2, 3, 4, generation=3)
    staged_epoch(sink, 1, 5, 6, generation=4)
    opened(sink).abandon(3, list(kept.messages.values()))
    generations = sorted(path.name.split("-")[0] for path in sink.directory.iterdir())
    assert generations == ["g3", "g3", "g4", "g4"]


def test_an_unfinished_file_goes_with_its_writer(tmp_path: Path) -> None:
    sink, _ = sink_at(tmp_path)
    writer = sink.create_writer()
    writer.open(SinkContext("query", 1, 0, 1, "aa"))
    for _ in range(2):
        writer.write(batch(*range(70_000)))
    assert len(list(sink.directory.iterdir())) == 1
    writer.close()
    assert list(sink.directory.iterdir()) == []


def test_an_empty_result_is_an_empty_file(tmp_path: Path) -> None:
    sink, _ = sink_at(tmp_path)
    writer = sink.create_writer()
    writer.open(SinkContext("query", 1, 0, 1, "aa"))
    writer.replace()
    message = writer.prepare(1)
    assert message is not None
    staged = msgspec.json.decode(message, type=StagedRows)
    assert (staged.rows, pq.read_table(sink.directory / staged.file).num_rows) == (0, 0)
    assert writer.prepare(2) is None


def test_a_staged_file_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    sink, _ = sink_at(tmp_path)
    permit = staged_epoch(sink, 1, 1, 2)
    file = sink.directory / json.loads(permit.messages[0])["file"]
    file.write_bytes(b"x")
    with pytest.raises(CommitUnknown, match=f"{file.name} has 1 bytes"):
        opened(sink).commit(permit)
    file.unlink()
    with pytest.raises(CommitUnknown, match=f"{file.name}.*cannot be read"):
        opened(sink).commit(permit)


def test_a_column_that_cannot_be_staged_is_named() -> None:
    with pytest.raises(NotSupported, match=r"column a\.b of type null"):
        TableSink("t", pa.schema([("a", pa.struct([("b", pa.null())]))]), "", None)


OLDER = StructType().add("v2", "long").add("v", "string").json()


def test_rows_are_written_with_the_columns_that_they_were_staged_with(tmp_path: Path) -> None:
    before, writer = sink_at(tmp_path, columns=OLDER)
    waiting, plain = staged_epoch(before, 1, 1), staged_epoch(before, 2, 2)
    after, _ = sink_at(tmp_path, writer)
    for permit in (waiting, plain, staged_epoch(after, 3, 3)):
        opened(after).check_pending(permit, same_columns=False)
        opened(after).commit(permit)
    assert writer.columns == [OLDER, OLDER, COLUMNS]
    writer.refused = (OLDER,)
    with pytest.raises(ConfigError, match="do not fit"):
        opened(after).check_pending(waiting, same_columns=False)


def test_columns_that_an_earlier_release_did_not_store_are_the_query_s_only_if_these_are_as_they_were(
    tmp_path: Path,
) -> None:
    sink, writer = sink_at(tmp_path)
    permit = staged_epoch(sink, 1, 1)
    old = {index: _without_columns(message) for index, message in permit.messages.items()}
    committer = opened(sink)
    with pytest.raises(SinkError, match="an earlier release staged its rows and did not store their columns"):
        committer.check_pending(EpochCommit("query", 1, old), same_columns=False)
    committer.check_pending(EpochCommit("query", 1, old), same_columns=True)
    committer.commit(EpochCommit("query", 1, old))
    assert (writer.columns, keys(writer.location)) == ([COLUMNS], [1])


def _without_columns(message: bytes) -> bytes:
    staged = json.loads(message)
    del staged["columns"]
    return json.dumps(staged).encode()


UDT = {"type": "udt", "class": "x.Y", "pyClass": "os.system", "sqlType": "long", "serializedClass": "gANjb3MK"}


def column(kind: Any) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]})


NO_SCHEMA = "no schema"
NO_CLASS = "of type 'udt', which are only read back by the query that staged them"


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("[" * 100_000, "forged"),
        ("7", "forged"),
        ("{" * 100_000 + "}", NO_SCHEMA),
        ('{"type":"struct"}', NO_SCHEMA),
        (column("no such type"), NO_SCHEMA),
        (column(UDT), NO_CLASS),
        (column({"type": "array", "elementType": UDT, "containsNull": True}), NO_CLASS),
        (column(json.loads(column(UDT))), NO_CLASS),
    ],
)
def test_stored_columns_that_are_none_are_refused_before_anything_is_read(
    tmp_path: Path, columns: str, why: str
) -> None:
    forged, writer = sink_at(tmp_path, columns=columns)
    permit = staged_epoch(forged, 1, 1)
    sink, _ = sink_at(tmp_path, writer)
    with pytest.raises(SinkError, match=why):
        opened(sink).check_pending(permit, same_columns=False)
    assert writer.columns == []


def test_columns_of_one_epoch_are_the_same_in_all_its_messages(tmp_path: Path) -> None:
    older, writer = sink_at(tmp_path, columns=OLDER)
    sink, _ = sink_at(tmp_path, writer)
    mixed = {0: staged_epoch(older, 1, 1).messages[0], 1: staged_epoch(sink, 1, 2).messages[0]}
    with pytest.raises(SinkError, match="different columns"):
        opened(sink).check_pending(EpochCommit("query", 1, mixed), same_columns=False)


def test_a_table_takes_back_what_is_visible_and_what_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, writer = sink_at(tmp_path)
    for epoch in range(1, 5):
        opened(sink).commit(staged_epoch(sink, epoch, epoch, epoch + 10))
    with monkeypatch.context() as patch:
        _crash_at("rename 2", patch, writer)
        with pytest.raises(_Crash):
            opened(sink).commit(staged_epoch(sink, 5, 5, 6))
    committer = opened(sink)
    assert committer.retraction_problem(2, 6) == ""
    for _ in range(2):
        committer.retract(2, 6)
        assert keys(writer.location) == [1, 2, 11, 12]
        assert sorted(os.listdir(writer.location / HOME)) == ["query-sink-0.json"]
    opened(sink).commit(staged_epoch(sink, 6, 7))
    assert keys(writer.location) == [1, 2, 7, 11, 12]
