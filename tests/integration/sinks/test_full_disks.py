"""A file system that is full or read-only for a while, with the output, the checkpoint location or local state."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from rocksdict import WriteBatch

import penstock
from penstock.errors import ResourceError, SinkError
from penstock.queries.streaming_query import StreamingQuery
from penstock.rest.metrics import families
from penstock.state.rocksdb_store import RocksStore
from tests.support.queries.query_running import Inbox, Start, eventually

ROWS = 500
"""Size of an input file."""
FILLER = "filler"


def mount(folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (done := mount(folder, "size=4m")).returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    with (disk / FILLER).open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)


def empty(disk: Path) -> None:
    (disk / FILLER).unlink()


def read_only(disk: Path) -> None:
    eventually(lambda: not mount(disk, "remount,ro").returncode, "a moment at which no file is open")


def writable(disk: Path) -> None:
    assert not mount(disk, "remount,rw").returncode


OUTAGES = {
    "full": (fill, empty, "No space left on device"),
    "read-only": (read_only, writable, "Read-only file system|Mkdirs failed"),  # so says Spark's writer
}


class Sinks:
    """Sinks that write below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def parquet(self, writer: penstock.DataStreamWriter, start: Start, **options: str) -> StreamingQuery:
        return start(writer.format("parquet"), path=str(self.folder), **options)

    def foreach_batch(self, writer: penstock.DataStreamWriter, start: Start, **options: str) -> StreamingQuery:
        def write(df: DataFrame, batch: int) -> None:
            df.write.mode("overwrite").parquet(str(self.folder / f"batch={batch}"))

        return start(writer.foreachBatch(write), **options)

    def table(self, writer: penstock.DataStreamWriter, start: Start, **options: str) -> StreamingQuery:
        for name, value in {"checkpoint.interval": "200ms", "parallelism": "1", **options}.items():
            writer = writer.option(name, value)
        return writer.toTable("full_disk", path=str(self.folder), format="parquet")


@pytest.mark.one_in(3)
@pytest.mark.spark
@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize(
    ("sink", "below", "what"),
    [
        ("parquet", "out", "generations"),
        ("foreach_batch", "out", "sink sink-0"),
        ("table", "out", "sink sink-0"),
        ("parquet", "checkpoint", "checkpoints"),
        ("foreach_batch", "checkpoint", "generations"),
    ],
)
def test_a_disk_that_is_away_for_a_while_is_waited_for_and_seen(
    spark: SparkSession,
    inbox: Inbox,
    disk: Path,
    tmp_path: Path,
    start_writer: Start,
    outage: str,
    sink: str,
    below: str,
    what: str,
) -> None:
    begin, end, reason = OUTAGES[outage]
    folders = {name: (disk if name == below else tmp_path) / name for name in ("out", "checkpoint")}
    start: Callable[..., StreamingQuery] = getattr(Sinks(folders["out"]), sink)
    rows: list[tuple[int, int, float]] = []

    def add() -> None:
        more = [(random.getrandbits(60), len(rows) + number, 0.0) for number in range(ROWS)]
        rows.extend(more)
        inbox.add(more)

    options = {"restart.attempts": "1000", "restart.maxDelay": "300ms", "sink.retryTimeout": "5m"}
    writer = penstock.writeStream(inbox.stream(spark))
    query = start(writer, start_writer, checkpointLocation=str(folders["checkpoint"]), **options)
    try:
        add()
        query.processAllAvailable()
        begin(disk)
        add()
        eventually(lambda: what in {one.what for one in query.view().outages}, f"an outage of {what}")
        add()
        eventually(lambda: max(one.failures for one in query.view().outages) > 3, "tries")
        assert query.isActive
        message = query.status["message"]
        assert f"{what}: " in message
        assert re.search(reason, message)
        if (sink, below) != ("foreach_batch", "out"):  # only the user knows where a function writes
            assert str(disk) in message
        values = {family.name: family.samples[0].value for family in families([query.facts()]) if family.samples}
        assert values["penstock_query_outages"] >= 1
        end(disk)
        query.processAllAvailable()
        assert query.view().outages == ()
        assert what not in query.status["message"]
    finally:
        query.stop()
        spark.sql("DROP TABLE IF EXISTS full_disk")
    written = spark.read.option("recursiveFileLookup", "true").parquet(str(folders["out"])).select("value").collect()
    assert sorted(row.value for row in written) == list(range(len(rows)))


@pytest.mark.spark
def test_a_disk_that_stays_full_ends_the_query_with_an_error_that_names_the_file(
    spark: SparkSession, inbox: Inbox, disk: Path, start: Start
) -> None:
    query: StreamingQuery = start(inbox.stream(spark), path=str(disk / "out"), **{"restart.delay": "1ms"})
    inbox.add([(1, 1, 0.0)])
    query.processAllAvailable()
    fill(disk)
    inbox.add([(2, 2, 0.0)])
    told = rf"(?s)cannot write {disk}/out/.*No space left.*2 restarts without progress"
    with pytest.raises(StreamingQueryException, match=told) as raised:
        query.awaitTermination(30)
    assert isinstance(raised.value.__cause__, SinkError)


def test_local_state_on_a_full_disk_is_an_error_that_names_the_folder(disk: Path) -> None:
    store = RocksStore(8 << 20, str(disk))
    family = store.create_family("rows")
    fill(disk)

    def write() -> None:
        for number in range(100):
            batch = family.target(WriteBatch(raw_mode=True))
            for row in range(100):
                batch.put(os.urandom(16), b"%d-%d" % (number, row) + os.urandom(1 << 10))
            store.write(batch)

    with pytest.raises(ResourceError, match=rf"state on local disk in {disk}/.*(No space left|: 0 bytes are free)"):
        write()
    store.close()
    with pytest.raises(ResourceError, match=r"state (can be made )?on local disk"):
        RocksStore(8 << 20, str(disk))
    empty(disk)
    again = RocksStore(8 << 20, str(disk))
    again.write(again.create_family("rows").target(WriteBatch(raw_mode=True)))
    again.close()
    assert not list(disk.iterdir()), "nothing half-made stays"
