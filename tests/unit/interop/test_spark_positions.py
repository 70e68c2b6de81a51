"""Positions of one engine as those of the other; without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.connectors.base import Source
from penstock.connectors.files.source import FileSource
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.rate import RateSource
from penstock.interop.spark_checkpoint.findings import Finding
from penstock.interop.spark_checkpoint.logs import SparkCheckpoint
from penstock.interop.spark_checkpoint.positions import SparkPosition, spark_position, start_discovery
from penstock.model.manifest import SlotManifest, SnapshotMetadata, SourceManifest, SubtaskManifest
from penstock.model.splits import Discovery, Split

SCHEMA = pa.schema([("value", pa.string())])
DAY_MS = 86_400_000


def checkpoint(path: Path, *positions: Any) -> SparkCheckpoint:
    return SparkCheckpoint(path, "id", 0, None, positions, 0, 0, {}, False)


def kafka() -> KafkaSource:
    return KafkaSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t,u"})


def files_at(folder: Path, **options: str) -> FileSource:
    return FileSource("text", str(folder), SCHEMA, options)


def arrived(folder: Path, name: str, day: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(name)
    os.utime(folder / name, (day * 86_400, day * 86_400))
    return folder / name


def log(path: Path, *files: tuple[Path, int]) -> None:
    """A log of one batch: files, each with its day."""
    (path / "sources/0").mkdir(parents=True)
    lines = [f'{{"path":"file://{file}","timestamp":{day * DAY_MS},"batchId":0}}' for file, day in files]
    (path / "sources/0/0").write_text("\n".join(["v1", *lines]))


def found(discovery: Discovery | Finding, source: Source) -> list[str]:
    """The names of the files that come next."""
    assert isinstance(discovery, Discovery)
    return [Path(str(split.spec["path"])).name for split in source.discover(discovery.state, 1).splits]


def snapshot(
    state: Any, splits: list[Split], pending: list[Split] | None = None, drained: bool = False
) -> SnapshotMetadata:
    slots = [SlotManifest(0, [SubtaskManifest(0, 0, splits=splits)])]
    sources = [SourceManifest("source-0", 0, state, pending or [], drained)]
    return SnapshotMetadata(1, "chk-1", "q", 1, 1, "aligned", False, "", 0, 1, 128, slots, sources)


def test_what_spark_has_read_is_not_handed_out(tmp_path: Path) -> None:
    old, read, new = (arrived(tmp_path / "in", name, day) for name, day in (("old", 1), ("read", 30), ("new", 31)))
    log(tmp_path, (read, 30), (tmp_path / "in/gone", 30))
    source = files_at(tmp_path / "in")
    assert found(start_discovery(source, checkpoint(tmp_path, {"logOffset": 0}), 1), source) == [new.name]
    patient = files_at(tmp_path / "in", maxFileAge="400d")
    assert found(start_discovery(patient, checkpoint(tmp_path, {"logOffset": 0}), 1), patient) == [old.name, new.name]
    nothing = start_discovery(source, checkpoint(tmp_path, None), 1)
    assert isinstance(nothing, Discovery)
    assert nothing.state is None


def test_a_source_that_would_read_a_file_again_is_refused(tmp_path: Path) -> None:
    read = arrived(tmp_path / "in", "read", 30)
    os.symlink(tmp_path / "in", tmp_path / "same")
    log(tmp_path, (tmp_path / "same/read", 30))
    refused = start_discovery(files_at(tmp_path / "in"), checkpoint(tmp_path, {"logOffset": 0}), 1)
    assert isinstance(refused, Finding)
    assert str(tmp_path / "same/read") in refused.why
    by_name = files_at(tmp_path / "same", fileNameOnly="true")
    assert found(start_discovery(by_name, checkpoint(tmp_path, {"logOffset": 0}), 1), by_name) == []
    assert read.exists()


@pytest.mark.parametrize(
    ("positions", "why"),
    [
        (({"logOffset": 0}, {"logOffset": 0}), "Spark's query has 2 sources, the DataFrame one"),
        (({"t": {"0": 5}},), "is that of another kind of source"),
        (({"logOffset": "x"},), "Spark's position is"),
    ],
)
def test_positions_of_others_are_refused(tmp_path: Path, positions: tuple[Any, ...], why: str) -> None:
    log(tmp_path)
    arrived(tmp_path / "in", "read", 30)
    refused = start_discovery(files_at(tmp_path / "in"), checkpoint(tmp_path, *positions), 1)
    assert isinstance(refused, Finding)
    assert why in refused.why


def test_a_source_without_a_counterpart_is_named(tmp_path: Path) -> None:
    refused = start_discovery(RateSource(), checkpoint(tmp_path, {"x": 5}), 1)
    assert isinstance(refused, Finding)
    assert "RateStreamV2" in refused.what


def test_kafka_goes_on_at_sparks_offsets_and_back(tmp_path: Path) -> None:
    offsets = {"t": {"0": 5, "1": 0}, "u": {"0": 1 << 40}}
    moved = start_discovery(kafka(), checkpoint(tmp_path, offsets), 2)
    assert isinstance(moved, Discovery)
    assert [(split.split_id, split.spec["start"], split.home) for split in moved.splits] == [
        ("t/0", 5, 0),
        ("t/1", 0, 1),
        ("u/0", 1 << 40, 2),
    ]
    assert moved.state == {"partitions": offsets}
    first, *others = moved.splits
    further = msgspec.structs.replace(first, position={"offset": 9})
    back = spark_position(kafka(), "source-0", snapshot(moved.state, [further], others))
    assert back == SparkPosition({"t": {"0": 9, "1": 0}, "u": {"0": 1 << 40}})
    partial = spark_position(kafka(), "source-0", snapshot(moved.state, others))
    assert isinstance(partial, Finding)
    assert "there is no position of t-0" in partial.why
    drained = spark_position(kafka(), "source-0", snapshot(moved.state, [], drained=True))
    assert isinstance(drained, Finding)
    assert "its positions were not kept" in drained.why
    for wrong in ({"t": 5}, {"t": {"x": 5}}, {"t": {"0": -2}}, {"logOffset": 3}, {}):
        assert isinstance(start_discovery(kafka(), checkpoint(tmp_path, wrong), 2), Finding)


def test_a_file_that_is_read_in_part_cannot_go_back_and_one_that_waits_can(tmp_path: Path) -> None:
    names = [arrived(tmp_path / "in", name, 30) for name in ("a", "b", "c")]
    source = files_at(tmp_path / "in", maxFilesPerTrigger="3")
    look = source.discover(None, 1)
    splits = list(look.splits)
    back = spark_position(source, "source-0", snapshot(look.state, splits[1:2], splits[2:]))
    assert isinstance(back, SparkPosition)
    assert [file.path for file in back.files or ()] == [str(names[0])]
    begun = msgspec.structs.replace(splits[1], position={"rows": 1})
    refused = spark_position(source, "source-0", snapshot(look.state, [begun]))
    assert isinstance(refused, Finding)
    assert f"1 files are read in part, {names[1]} among them" in refused.why
    for state, left in ((None, []), (look.state, splits)):
        assert isinstance(spark_position(source, "source-0", snapshot(state, left)), Finding)
