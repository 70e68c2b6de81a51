"""Files through the Spark source bridge, on the driver: which are staged, and what goes; lines of text play Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.spark.files import SparkFilesSource
from penstock.errors import ConfigError, DataError
from penstock.model.plain import Plain
from penstock.model.splits import Discovery
from penstock.snapshots.format.blobs import extract_blobs, insert_blobs
from tests.support.connectors.kits import check_replay, new_reader, read_rows, stored

SCHEMA = pa.schema([("line", pa.string())])


class LinesReader:
    """Each line of each file is a row."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], dict[str, str]]] = []

    def stage(self, files: Mapping[str, Sequence[str]], options: Mapping[str, str], directory: str) -> None:
        assert list(files) == [""], "no directory is a column here"
        self.calls.append(([Path(file).name for file in files[""]], dict(options)))
        lines = [line for file in files[""] for line in Path(file).read_text().splitlines()]
        Path(directory).mkdir()
        pq.write_table(pa.table({"line": lines}, schema=SCHEMA), Path(directory) / "part-0.parquet")


class Scene:
    def __init__(self, directory: Path) -> None:
        self.inbox, self.location = directory / "in", directory / "location"
        self.inbox.mkdir()
        self.reader = LinesReader()
        self.arrived = 0

    def add(self, *names: str) -> None:
        for name in names:
            path = self.inbox / name
            path.write_text(f"{name} one\n{name} two\n")
            self.arrived += 1
            os.utime(path, (1_700_000_000 + self.arrived,) * 2)

    def source(self, **options: str) -> SparkFilesSource:
        source = SparkFilesSource("lines", str(self.inbox), SCHEMA, options, self.reader, "UTC")
        source.open(str(self.location), "op")
        return source

    def staged(self) -> list[int]:
        return sorted(int(path.name[:10]) for path in self.location.glob("lane/op/*"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def from_a_snapshot(state: Plain) -> Any:
    plain, blobs = extract_blobs(state)
    return insert_blobs(json.loads(json.dumps(plain)), blobs)


def rows(source: SparkFilesSource, *found: Discovery) -> list[str]:
    reader = new_reader(source)
    for discovery in found:
        for split in discovery.splits:
            reader.add_split(stored(split))
    return [line for (line,) in read_rows(reader)]


def test_a_look_is_a_range_and_the_formats_options_go_to_spark(scene: Scene) -> None:
    scene.add("a", "b", "c")
    source = scene.source(maxFilesPerTrigger="2", rowTag="row")
    first = source.discover(None, 2)
    second = source.discover(first.state, 2)
    third = source.discover(second.state, 2)
    assert scene.reader.calls == [
        (["a", "b"], {"rowTag": "row", "ignoreMissingFiles": "false"}),
        (["c"], {"rowTag": "row", "ignoreMissingFiles": "false"}),
    ]
    assert rows(source, first, second, third) == ["a one", "a two", "b one", "b two", "c one", "c two"]
    assert not third.splits
    assert scene.staged() == [0, 1]


def test_every_position_can_be_gone_on_from(scene: Scene) -> None:
    scene.add("a", "b", "c")
    check_replay(scene.source(maxFilesPerTrigger="2"), max_rows=1)


def test_a_lost_look_is_made_again_and_what_it_staged_goes(scene: Scene) -> None:
    scene.add("a")
    lost = scene.source()
    first = lost.discover(None, 1)
    scene.add("b")
    lost.discover(first.state, 1)
    (scene.inbox / "b").unlink()
    scene.add("c")
    source = scene.source()
    again = source.discover(from_a_snapshot(first.state), 1)
    assert scene.staged() == [0, 1]
    assert rows(source, first, again) == ["a one", "a two", "c one", "c two"]


def test_what_is_read_is_let_go_and_cleaned_away(scene: Scene) -> None:
    scene.add("a")
    source = scene.source(cleanSource="delete")
    first = source.discover(None, 1)
    scene.add("b")
    second = source.discover(first.state, 1)
    source.committed(from_a_snapshot(first.state))
    assert scene.staged() == [1]
    assert sorted(os.listdir(scene.inbox)) == ["b"]
    assert rows(source, second) == ["b one", "b two"]


def test_a_frozen_source_is_finished_with_what_was_there(scene: Scene) -> None:
    scene.add("a", "b")
    source = scene.source(maxFilesPerTrigger="1")
    source.freeze()
    scene.add("c")
    first = source.discover(None, 1)
    second = source.discover(first.state, 1)
    assert (first.finished, second.finished) == (False, True)
    assert rows(source, first, second) == ["a one", "a two", "b one", "b two"]


def test_a_file_that_changes_while_spark_reads_it_is_an_error(scene: Scene) -> None:
    class Changes(LinesReader):
        def stage(self, files: Mapping[str, Sequence[str]], options: Mapping[str, str], directory: str) -> None:
            super().stage(files, options, directory)
            Path(files[""][0]).write_text("other")

    scene.add("a")
    scene.reader = Changes()
    with pytest.raises(DataError, match=r"in/a changed after it was listed"):
        scene.source().discover(None, 1)


def test_a_file_that_is_gone_is_an_error_unless_it_may_be(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.add("a", "b")
    real = SparkFilesSource._stage
    gone = ["a"]

    def vanishes(self: SparkFilesSource, files: Any, directory: str) -> None:
        (scene.inbox / gone[-1]).unlink()
        real(self, files, directory)

    monkeypatch.setattr(SparkFilesSource, "_stage", vanishes)
    scene_source = scene.source(ignoreMissingFiles="true")
    found = scene_source.discover(None, 1)
    assert rows(scene_source, found) == ["b one", "b two"]
    scene.add("c")
    gone.append("c")
    assert not scene_source.discover(found.state, 1).splits, "nothing is left of this look"
    gone.append("b")
    with pytest.raises(DataError, match=r"in/b was listed but is gone; ignoreMissingFiles=true skips it"):
        scene.source().discover(None, 1)


def test_options_of_file_streams_are_checked(scene: Scene) -> None:
    with pytest.raises(ConfigError, match="maxFilesPerTrigger"):
        scene.source(maxFilesPerTrigger="many")
    with pytest.raises(ConfigError, match="modifiedAfter is not allowed"):
        scene.source(modifiedAfter="2020-01-01")
