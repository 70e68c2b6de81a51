"""Files of sinks and sources in a checkpoint location: a folder that becomes a link later is not followed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.connectors.spark.staged_ranges import StagedRanges
from penstock.connectors.spark.staged_rows import StagedRowsCommitter, StagedRowsWriter, StagingSink
from penstock.errors import CorruptSnapshot, SinkError
from penstock.model.commits import EpochCommit

ROWS = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
COLUMNS = StructType().add("n", "long").json()
NAME = "g1-ab-00000-000000.parquet"


class Staging(StagingSink):
    def describe(self) -> str:
        return "Staging"

    def create_committer(self) -> StagedRowsCommitter:
        return Committer(self)


class Committer(StagedRowsCommitter):
    def deliver(self, permit: EpochCommit, files: Collection[str]) -> None:
        """Deliver nothing."""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / NAME).write_text("precious")
    (folder / "0000000001-ab").mkdir()
    return folder


def linked(folder: Path, outside: Path) -> Path:
    """Create a link in place of a folder of the location, which was a folder when the query started."""
    folder.parent.mkdir(parents=True)
    folder.symlink_to(outside)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_rows_are_not_staged_behind_a_link(tmp_path: Path, outside: Path) -> None:
    writer = StagedRowsWriter(linked(tmp_path / "location" / "staged" / "sink-1", outside), ROWS.schema, COLUMNS)
    writer.write(ROWS)
    with pytest.raises(SinkError, match="is a link"):
        writer.prepare(1)
    assert names(outside) == ["0000000001-ab", NAME]


def test_an_unfinished_file_is_not_removed_behind_a_link(tmp_path: Path, outside: Path) -> None:
    folder = tmp_path / "location" / "staged" / "sink-1"
    writer = StagedRowsWriter(folder, ROWS.schema, COLUMNS)
    writer.write(ROWS)
    writer._flush()
    [mine] = names(folder)
    (outside / mine).write_text("precious")
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(outside)
    with pytest.raises(SinkError, match="is a link"):
        writer.close()
    assert (outside / mine).read_text() == "precious"


def test_staged_rows_are_not_removed_behind_a_link(tmp_path: Path, outside: Path) -> None:
    sink = Staging(ROWS.schema, COLUMNS)
    sink.stage_in(str(linked(tmp_path / "location" / "staged" / "sink-1", outside)))
    with pytest.raises(SinkError, match="is a link"):
        Committer(sink).abandon(5)
    assert (outside / NAME).read_text() == "precious"


def test_staged_ranges_are_not_removed_behind_a_link(tmp_path: Path, outside: Path) -> None:
    ranges = StagedRanges("Spark", ROWS.schema, "UTC")
    ranges.open(str(tmp_path / "location"), "source-1")
    linked(ranges.directory, outside)
    with pytest.raises(CorruptSnapshot, match="is a link"):
        ranges.drop(lambda number: True)
    assert names(outside) == ["0000000001-ab", NAME]
