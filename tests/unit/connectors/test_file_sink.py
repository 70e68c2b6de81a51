"""File sinks: committed rows are seen once, staged ones never; what is in the way is named."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.base import SinkContext
from penstock.connectors.files import sink_plan as file_sink_plan
from penstock.connectors.files import sink_writer as file_sink_writer
from penstock.connectors.files.csv.sink import csv_sink_format
from penstock.connectors.files.format import LINES_AT_ONCE
from penstock.connectors.files.partitions import Partitioning
from penstock.connectors.files.private_directory import HOME
from penstock.connectors.files.sink import FileSink, FileSizes, file_sizes
from penstock.connectors.files.sink_committer import FileSinkCommitter
from penstock.connectors.files.sink_plan import FilesMessage
from penstock.connectors.files.sink_writer import FileSinkWriter
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import CommitFailed, CommitInterrupted, CommitUnknown, ConfigError, NotYet, SinkError
from penstock.model.commits import EpochCommit
from tests.support.connectors.file_sinks import KINDS, batch, file_format, sink, visible, visible_files
from tests.support.connectors.kits import QUERY_ID, check_commits_once, stage


@pytest.fixture(autouse=True)
def _no_timer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """FileRoller come with commits only, but where a test is about the timer."""
    if "by_itself" not in request.node.name:
        monkeypatch.setattr(FileSinkCommitter, "_set_timer", lambda self, least_s: None)


def seen(made: FileSink) -> list[int]:
    return sorted(visible(Path(made.path), made.file_format).elements())


def opened(made: FileSink, query_id: str = QUERY_ID) -> FileSinkCommitter:
    committer = made.create_committer()
    assert isinstance(committer, FileSinkCommitter)
    committer.open(query_id)
    return committer


def staged(out: Path) -> list[str]:
    return sorted(path.name for path in (out / HOME / "staged").iterdir())


def writer(made: FileSink, subtask: int = 0, generation: int = 1) -> FileSinkWriter:
    new = made.create_writer()
    assert isinstance(new, FileSinkWriter)
    new.open(SinkContext(QUERY_ID, generation, subtask, 8, "aa"))
    return new


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_each_epoch_is_visible_once(tmp_path: Path, kind: str, partitioned: bool) -> None:
    made = sink(tmp_path, kind, partitioned)
    parts = 2 if partitioned else 0
    for epoch in (1, 2):
        rows = {i: batch(epoch * 100 + i, kind=kind, partitions=parts) for i in range(3)}
        permit = stage(made, rows, epoch)
        check_commits_once(made, permit, lambda: len(seen(made)), 3)
    assert seen(made) == [100, 101, 102, 200, 201, 202]


def test_an_epoch_adds_one_small_file_to_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sink(tmp_path)
    opened(made).commit(stage(made, {i: batch(i) for i in range(5)}, 7))
    assert [path.name for path in visible_files(tmp_path)] == [f"part-00000-{QUERY_ID}-e0000000007-m000.snappy.parquet"]
    size = msgspec.json.decode(stage(made, {0: batch(1)}, 8).messages[0], type=FilesMessage).files[0].size
    monkeypatch.setattr(file_sink_plan, "MERGED_BYTES", 2 * size)
    opened(made).commit(stage(made, {i: batch(i) for i in range(5)}, 8))
    assert len(visible_files(tmp_path)) == 1 + 3
    monkeypatch.setattr(file_sink_plan, "SMALL_BYTES", size)
    opened(made).commit(stage(made, {i: batch(i) for i in range(5)}, 9))
    assert len(visible_files(tmp_path)) == 4 + 5


def test_partitions_are_directories_without_their_column(tmp_path: Path) -> None:
    made = sink(tmp_path, partitioned=True)
    opened(made).commit(stage(made, {0: batch(1, 2, 3, partitions=2), 1: batch(4, partitions=2)}, 1))
    found = {str(p.parent.relative_to(tmp_path)): pq.read_table(p, partitioning=None) for p in visible_files(tmp_path)}
    assert {name: sorted(table["a"].to_pylist()) for name, table in found.items()} == {
        "p=x%2F0": [2, 4],
        "p=x%2F1": [1, 3],
    }
    assert all(table.column_names == ["a"] for table in found.values())


def test_many_partitions_take_few_files_and_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sink_writer, "MEMORY_BYTES", 4_000)
    monkeypatch.setattr(file_sink_writer, "MAX_OPEN_FILES", 3)
    made = sink(tmp_path, partitioned=True)
    new = writer(made)
    for start in range(0, 5000, 500):
        new.write(batch(*range(start, start + 500), partitions=20))
        assert len(new._open) <= 3
        assert new._gathered_bytes <= 4_000
    message = new.prepare(1)
    assert message is not None
    assert not new._open
    opened(made).commit(EpochCommit(QUERY_ID, 1, {0: message}, 0))
    assert seen(made) == list(range(5000))


def test_more_directories_than_open_files_take_no_file_for_every_few_lines(tmp_path: Path) -> None:
    options = OptionTexts("csv sink", {})
    made = csv_sink_format(pa.schema([("n", pa.int64())]), options, "UTC")
    new = FileSinkWriter(tmp_path, made, Partitioning((0,), ("p",), (1,), "UTC", True), 1 << 30)
    new.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    directories, rows = 2 * file_sink_writer.MAX_OPEN_FILES, 4 * LINES_AT_ONCE
    for _ in range(directories):
        numbers = np.arange(rows)
        new.write(pa.record_batch({"p": numbers % directories, "n": numbers}))
    message = new.prepare(1)
    assert message is not None
    files = msgspec.json.decode(message, type=FilesMessage).files
    assert sum(file.rows for file in files) == directories * rows
    assert len(files) == directories


def test_files_are_ended_at_the_target_size(tmp_path: Path) -> None:
    made = sink(tmp_path, sizes=FileSizes(target_bytes=200_000))
    new = writer(made)
    for start in range(0, 400_000, 50_000):
        new.write(batch(*range(start, start + 50_000)))
    message = new.prepare(1)
    assert message is not None
    assert len(msgspec.json.decode(message, type=FilesMessage).files) > 1
    opened(made).commit(EpochCommit(QUERY_ID, 1, {0: message}, 0))
    assert seen(made) == list(range(400_000))


def test_a_lost_file_is_an_unknown_outcome(tmp_path: Path) -> None:
    made = sink(tmp_path)
    for rows in ({0: batch(1)}, {0: batch(1), 1: batch(2)}):
        permit = stage(made, rows, 1)
        (tmp_path / HOME / "staged" / staged(tmp_path)[0]).unlink()
        with pytest.raises(CommitUnknown, match=r"neither .*staged.* exists: 1 rows were staged for"):
            opened(made).commit(permit)


def test_a_foreign_file_under_the_final_name_is_an_unknown_outcome(tmp_path: Path) -> None:
    made = sink(tmp_path)
    permit = stage(made, {0: batch(1)}, 1)
    final = msgspec.json.decode(permit.messages[0], type=FilesMessage).files[0].final
    (tmp_path / final).write_bytes(b"else")
    with pytest.raises(CommitUnknown, match="has 4 bytes"):
        opened(made).commit(permit)


def test_a_refused_rename_is_a_failed_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sink_plan, "SMALL_BYTES", 0)
    made = sink(tmp_path)
    permit = stage(made, {0: batch(1), 1: batch(2)}, 1)
    rename, calls = os.rename, []

    def refusing(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) != 2:
            raise OSError(errno.EACCES, "no permission")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refusing)
        with pytest.raises(CommitFailed, match="no permission"):
            opened(made).commit(permit)
        assert seen(made) == []
        with pytest.raises(CommitInterrupted, match="no permission"):
            opened(made).commit(permit)
        assert seen(made) == [1]
    opened(made).commit(permit)
    assert seen(made) == [1, 2]


def test_a_merge_that_fails_is_a_failed_commit_and_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sink(tmp_path)
    permit = stage(made, {0: batch(1), 1: batch(2)}, 1)
    committer = opened(made)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(made.file_format), "merge", full)
        with pytest.raises(CommitFailed, match="No space left"):
            committer.commit(permit)
        assert seen(made) == []
    committer.commit(permit)
    assert seen(made) == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_abandoned_generations_are_removed_but_pending_files_stay(tmp_path: Path, kind: str) -> None:
    made = sink(tmp_path, kind)
    pending = stage(made, {0: batch(1, kind=kind)}, 5, generation=1)
    stage(made, {0: batch(2, kind=kind)}, 6, generation=2)
    current = stage(made, {0: batch(3, kind=kind)}, 6, generation=3)
    new = writer(made, 7, 2)
    new.write(batch(4, kind=kind))
    new._flush(new._directories[""])  # a file that is not complete, as a killed slot leaves it
    committer = opened(made)
    assert len(staged(tmp_path)) == 4
    committer.abandon(2, list(pending.messages.values()))
    assert [name[:3] for name in staged(tmp_path)] == ["g1-", "g3-"]
    committer.commit(pending)
    committer.commit(current)
    assert seen(made) == [1, 3]
    new.close()


def test_empty_epochs_leave_nothing(tmp_path: Path) -> None:
    made = sink(tmp_path)
    new = writer(made)
    assert new.prepare(1) is None
    new.write(batch(1))
    assert new.prepare(2) is not None
    assert new.prepare(3) is None
    opened(made).commit(EpochCommit(QUERY_ID, 3, {}, 0))
    assert seen(made) == []


def test_small_batches_become_one_row_group(tmp_path: Path) -> None:
    new = writer(sink(tmp_path))
    for i in range(300):
        new.write(batch(*range(i * 1000, i * 1000 + 1000)))
    file = msgspec.json.decode(new.prepare(1), type=FilesMessage).files[0]
    path = tmp_path / HOME / "staged" / Path(file.staged).name
    metadata = pq.read_metadata(path)
    assert (metadata.num_rows, file.rows, file.size) == (300_000, 300_000, path.stat().st_size)
    assert metadata.num_row_groups == 3


def test_directories_that_are_taken_are_refused(tmp_path: Path) -> None:
    made = sink(tmp_path / "out", "csv")
    opened(made)
    opened(made)
    with pytest.raises(SinkError, match="written by another query"):
        opened(made, "another")
    (tmp_path / "sparks" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(SinkError, match="_spark_metadata"):
        opened(sink(tmp_path / "sparks"))
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"file is a file; give a directory"):
        opened(sink(tmp_path / "file"))
    with pytest.raises(NotYet, match="hdfs://x/out"):
        FileSink("hdfs://x/out", file_format("csv"))


def test_a_driver_that_was_refused_leaves_alone_what_is_not_its(tmp_path: Path) -> None:
    made = sink(tmp_path, sizes=FileSizes(roll_interval_ms=1_000_000))
    first = opened(made)
    first.commit(stage(made, {0: batch(1)}, 1))
    second = made.create_committer()
    with pytest.raises(SinkError, match="written by another query"):
        second.open("another")
    second.close()
    assert seen(made) == []
    first.close()
    assert seen(made) == [1]


def test_a_failed_write_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    new = writer(sink(tmp_path))
    new.write(batch(1))
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(SinkError, match=r"g1-aa-00000-000000\.parquet.*No space left"):
        new.prepare(1)


# -- rolls -------------------------------------------------------------------------------------------------------------


def rolling(made: FileSink, now: Callable[[], float], target_bytes: int = 1 << 20) -> FileSinkCommitter:
    committer = FileSinkCommitter(Path(made.path), made.file_format, 60.0, target_bytes, now)
    committer.open(QUERY_ID)
    return committer


def test_small_files_are_kept_back_until_they_are_old(tmp_path: Path) -> None:
    made = sink(tmp_path, "json")
    now = [1000.0]
    committer = rolling(made, lambda: now[0])
    for epoch in range(1, 4):
        committer.commit(stage(made, {0: batch(epoch, kind="json"), 1: batch(-epoch, kind="json")}, epoch))
        now[0] += 25
        assert seen(made) == []
    committer.commit(stage(made, {0: batch(4, kind="json")}, 4))
    assert len(visible_files(tmp_path)) == 1
    assert sum(visible(tmp_path, made.file_format).values()) == 7
    committer.close()


def test_small_files_are_kept_back_until_they_are_large(tmp_path: Path) -> None:
    made = sink(tmp_path)
    permits = [stage(made, {0: batch(epoch)}, epoch, generation=epoch) for epoch in range(1, 9)]
    size = msgspec.json.decode(permits[0].messages[0], type=FilesMessage).files[0].size
    committer = rolling(made, lambda: 0.0, target_bytes=size * 4)
    for permit in permits:
        committer.commit(permit)
    assert len(visible_files(tmp_path)) == 2
    assert seen(made) == list(range(1, 9))
    committer.close()


def test_files_of_about_the_target_size_are_not_kept_back(tmp_path: Path) -> None:
    made = sink(tmp_path)
    committer = rolling(made, lambda: 0.0, target_bytes=2)
    committer.commit(stage(made, {0: batch(1)}, 1))
    assert seen(made) == [1]
    committer.close()


def test_a_roll_comes_by_itself_when_no_commit_does(tmp_path: Path) -> None:
    made = sink(tmp_path, sizes=FileSizes(roll_interval_ms=50))
    committer = opened(made)
    published = threading.Event()
    publish = committer._roller.publish

    def watched(everything: bool = False) -> None:
        publish(everything)
        if visible_files(tmp_path):
            published.set()

    committer._roller.publish = watched  # type: ignore[method-assign]
    committer.commit(stage(made, {0: batch(1)}, 1))
    assert published.wait(20)
    assert seen(made) == [1]
    committer.close()


def test_the_next_driver_rolls_what_the_last_one_kept(tmp_path: Path) -> None:
    made = sink(tmp_path, partitioned=True)
    rolling(made, lambda: 0.0).commit(stage(made, {0: batch(1, 2, partitions=2)}, 1))
    late = rolling(made, lambda: 1e12)
    late.abandon(0)
    assert seen(made) == []
    late.commit(stage(made, {0: batch(3, 4, partitions=2)}, 2))
    assert seen(made) == [1, 2, 3, 4]
    assert len(visible_files(tmp_path)) == 2
    late.close()


def test_without_the_option_kept_files_are_published_at_once(tmp_path: Path) -> None:
    made = sink(tmp_path)
    rolling(made, lambda: 0.0).commit(stage(made, {0: batch(1)}, 1))
    opened(made).commit(stage(made, {0: batch(2)}, 2))
    assert seen(made) == [1, 2]


def test_sizes_are_options() -> None:
    assert file_sizes(OptionTexts("x", {})) == FileSizes(0, 128 << 20)
    assert file_sizes(OptionTexts("x", {"rollInterval": "5m", "targetFileSize": "1g"})) == FileSizes(300_000, 1 << 30)
    for texts in ({"rollInterval": "soon"}, {"targetFileSize": "0"}):
        with pytest.raises(ConfigError, match=next(iter(texts))):
            file_sizes(OptionTexts("x", texts))
