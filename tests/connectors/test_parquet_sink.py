"""The parquet sink: committed rows are seen once, staged ones never, whatever is killed when."""

from __future__ import annotations

import datetime as dt
import errno
import os
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from kits import QUERY_ID, check_commits_once, stage

from penstock.connectors import parquet_sink
from penstock.connectors.base import EpochCommit, SinkContext
from penstock.connectors.parquet_sink import ParquetMessage, ParquetSink, ParquetSinkCommitter
from penstock.errors import CommitFailed, CommitUnknown, ConfigError, NotSupported, NotYet, SinkError

SCHEMA = pa.schema([("a", pa.int64())])


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


def visible(out: Path) -> list[int]:
    return sorted(ds.dataset(out, format="parquet", schema=SCHEMA).to_table()["a"].to_pylist())


def opened(sink: ParquetSink, query_id: str = QUERY_ID) -> ParquetSinkCommitter:
    committer = sink.create_committer()
    committer.open(query_id)
    return committer


def staged(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "_penstock" / "staged").iterdir())


def test_each_epoch_is_visible_once(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path / "out"), SCHEMA)
    for epoch in (1, 2):
        permit = stage(sink, {0: batch(1, 2), 2: batch(3)}, epoch)
        check_commits_once(sink, permit, lambda: len(visible(tmp_path / "out")), 3)
    names = sorted(path.name for path in (tmp_path / "out").glob("*.parquet"))
    assert names[0] == f"part-00000-{QUERY_ID}-e0000000001-c000.snappy.parquet"
    assert len(names) == 4


class _Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("renames", range(4))
@pytest.mark.parametrize("after", [False, True], ids=["before-rename", "after-rename"])
def test_a_commit_killed_between_renames_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int, after: bool
) -> None:
    sink = ParquetSink(str(tmp_path), SCHEMA)
    permit = stage(sink, {i: batch(i) for i in range(4)}, 1)
    rename, done = os.rename, 0

    def killing(source: Path, target: Path) -> None:
        nonlocal done
        if done == renames and not after:
            raise _Killed
        rename(source, target)
        done += 1
        if done == renames + 1 and after:
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(parquet_sink.os, "rename", killing)
        with pytest.raises(_Killed):
            opened(sink).commit(permit)
    assert visible(tmp_path) == list(range(renames + after))
    opened(sink).commit(permit)
    assert visible(tmp_path) == [0, 1, 2, 3]
    assert staged(tmp_path) == []


def test_a_lost_file_is_an_unknown_outcome(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path), SCHEMA)
    permit = stage(sink, {0: batch(1)}, 1)
    for name in staged(tmp_path):
        (tmp_path / "_penstock" / "staged" / name).unlink()
    with pytest.raises(CommitUnknown, match=r"neither .*staged.* exists; someone removed 1 rows"):
        opened(sink).commit(permit)


def test_a_foreign_file_under_the_final_name_is_an_unknown_outcome(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path), SCHEMA)
    permit = stage(sink, {0: batch(1)}, 1)
    final = msgspec.json.decode(permit.messages[0], type=ParquetMessage).files[0].final
    (tmp_path / final).write_bytes(b"else")
    with pytest.raises(CommitUnknown, match="has 4 bytes"):
        opened(sink).commit(permit)


def test_a_refused_rename_is_a_failed_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ParquetSink(str(tmp_path), SCHEMA)
    permit = stage(sink, {0: batch(1), 1: batch(2)}, 1)
    rename, calls = os.rename, []

    def refusing(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) != 2:
            raise OSError(errno.EACCES, "no permission")
        rename(source, target)

    monkeypatch.setattr(parquet_sink.os, "rename", refusing)
    with pytest.raises(CommitFailed, match="no permission"):
        opened(sink).commit(permit)
    assert visible(tmp_path) == []
    with pytest.raises(CommitUnknown, match="no permission"):
        opened(sink).commit(permit)
    assert visible(tmp_path) == [1]


def test_abandoned_generations_are_removed_but_pending_files_stay(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path), SCHEMA)
    pending = stage(sink, {0: batch(1)}, 5, generation=1)
    stage(sink, {0: batch(2)}, 6, generation=2)
    current = stage(sink, {0: batch(3)}, 6, generation=3)
    writer = sink.create_writer()
    writer.open(SinkContext(QUERY_ID, 2, 7, 8, "ff"))
    writer.write(batch(4))
    writer._flush()  # a file without its footer, as a killed slot leaves it
    committer = opened(sink)
    assert len(staged(tmp_path)) == 4
    committer.abandon(2, list(pending.messages.values()))
    assert [name[:3] for name in staged(tmp_path)] == ["g1-", "g3-"]
    committer.commit(pending)
    committer.commit(current)
    assert visible(tmp_path) == [1, 3]
    writer.close()


def test_empty_epochs_leave_nothing(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path), SCHEMA)
    writer = sink.create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    assert writer.prepare(1) is None
    writer.write(batch(1))
    assert writer.prepare(2) is not None
    assert writer.prepare(3) is None
    opened(sink).commit(EpochCommit(QUERY_ID, 3, {}))
    assert visible(tmp_path) == []


def test_small_batches_become_one_row_group(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path), SCHEMA)
    writer = sink.create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    for i in range(300):
        writer.write(batch(*range(i * 1000, i * 1000 + 1000)))
    message = writer.prepare(1)
    file = msgspec.json.decode(message, type=ParquetMessage).files[0]
    metadata = pq.read_metadata(tmp_path / file.staged)
    assert (metadata.num_rows, file.rows, file.size) == (300_000, 300_000, (tmp_path / file.staged).stat().st_size)
    assert metadata.num_row_groups == 3


def test_directories_that_are_taken_are_refused(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path / "out"), SCHEMA)
    opened(sink)
    opened(sink)
    with pytest.raises(SinkError, match="written by another query"):
        opened(sink, "another")
    (tmp_path / "sparks" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(SinkError, match="_spark_metadata"):
        opened(ParquetSink(str(tmp_path / "sparks"), SCHEMA))
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"file is a file; give a directory"):
        opened(ParquetSink(str(tmp_path / "file"), SCHEMA))


def test_what_cannot_be_written_is_refused_by_name() -> None:
    with pytest.raises(NotSupported, match=r"column a\.x of type null"):
        ParquetSink("/out", pa.schema([("a", pa.struct([("x", pa.null())]))]))
    with pytest.raises(ConfigError, match="columns a and A"):
        ParquetSink("/out", pa.schema([("a", pa.int64()), ("A", pa.int64())]))
    with pytest.raises(ConfigError, match="option partitionOverwriteMode"):
        ParquetSink("/out", SCHEMA, {"partitionOverwriteMode": "x"})
    with pytest.raises(ConfigError, match="compression=lzo"):
        ParquetSink("/out", SCHEMA, {"compression": "lzo"})
    with pytest.raises(NotYet, match="hdfs://x/out"):
        ParquetSink("hdfs://x/out", SCHEMA)


def test_a_failed_write_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sink = ParquetSink(str(tmp_path), SCHEMA)
    writer = sink.create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    writer.write(batch(1))
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(SinkError, match=r"g1-aa-00000-000000\.parquet.*No space left"):
        writer.prepare(1)


@pytest.mark.spark
def test_spark_sees_committed_rows_of_every_type_only(spark, tmp_path: Path) -> None:
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 678901)
    ddl = (
        "b BOOLEAN, y BYTE, s SHORT, i INT, l LONG, f FLOAT, d DOUBLE, x STRING, n BINARY, t DATE, ts TIMESTAMP, "
        "ntz TIMESTAMP_NTZ, d9 DECIMAL(9,2), d18 DECIMAL(18,3), d38 DECIMAL(38,10), a ARRAY<INT>, "
        "st STRUCT<p: INT, q: STRING>, m MAP<STRING, INT>"
    )
    row = (
        True, 1, 2, 3, 4, 0.5, 0.25, "ä", b"\x01", dt.date(2020, 1, 2), moment, moment, Decimal("1.25"),
        Decimal("-2.125"), Decimal("12345678901234567890.0123456789"), [1, None], (1, "q"), {"k": 1},
    )  # fmt: skip
    frame = spark.createDataFrame([row, (None,) * len(row)], ddl)
    table = frame.toArrow()
    schema = pa.schema(
        [f.with_type(pa.timestamp("us", "UTC")) if f.name == "ts" else f for f in table.schema]
    ).remove_metadata()
    rows = table.cast(schema).combine_chunks().to_batches()[0]
    sink = ParquetSink(str(tmp_path), schema)
    opened(sink).commit(stage(sink, {0: rows}, 1))
    stage(sink, {0: rows}, 2)  # never committed
    assert spark.read.schema(ddl).parquet(str(tmp_path)).collect() == frame.collect()
    inferred = spark.read.parquet(str(tmp_path))
    assert inferred.schema.simpleString() == frame.schema.simpleString()
    assert inferred.count() == 2
