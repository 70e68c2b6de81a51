"""Ranges of the Spark source bridge on the driver: planned, staged, dropped. A list of numbers replaces Spark."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.spark.bridge import SparkBridgeSource
from penstock.errors import DataError
from penstock.model.plain import Plain
from penstock.model.splits import Discovery
from tests.support.connectors.kits import check_replay, new_reader, read_rows, stored

SCHEMA = pa.schema([("n", pa.int64())])


class NumbersBridge:
    """The numbers up to ``there``; a range has at most ``limit`` of them, in two files."""

    def __init__(self, there: int, limit: int = 4) -> None:
        self.there = there
        self.limit = limit
        self.begun: list[int] = []
        self.told: list[str] = []

    def open(self, directory: str) -> None:
        assert directory.endswith("lane/op/stream")

    def initial_offset(self) -> str:
        return "0"

    def latest_offset(self, start: str) -> str:
        return str(min(int(start) + self.limit, self.there))

    def freeze(self, start: str) -> str | None:
        return str(self.there)

    def stage(self, start: str, end: str, directory: str) -> None:
        self.begun.append(int(start))
        Path(directory).mkdir()
        numbers = list(range(int(start), int(end)))
        for part, rows in enumerate((numbers[::2], numbers[1::2])):
            pq.write_table(pa.table({"n": rows}, schema=SCHEMA), Path(directory) / f"part-{part}.parquet")
        (Path(directory) / "_SUCCESS").touch()

    def committed(self, offset: str) -> None:
        self.told.append(offset)

    def stop(self) -> None:
        self.told.append("stop")


def source_of(bridge: NumbersBridge, location: Path) -> SparkBridgeSource:
    source = SparkBridgeSource("numbers", bridge, SCHEMA, "UTC")
    source.open(str(location), "op")
    return source


def look(source: SparkBridgeSource, state: Plain) -> Discovery:
    """Discover splits like the driver: the state goes through a snapshot only if a new driver or Generation begins."""
    return source.discover(state, 2)


def through_json(state: Plain) -> Any:
    return json.loads(json.dumps(state))


def numbers(source: SparkBridgeSource, *found: Discovery) -> list[int]:
    with closing(new_reader(source)) as reader:
        for discovery in found:
            for split in discovery.splits:
                reader.add_split(stored(split))
        return sorted(n for (n,) in read_rows(reader))


def directories(location: Path) -> list[int]:
    return sorted(int(path.name[:10]) for path in location.glob("lane/op/*"))


def test_ranges_follow_each_other_within_the_sources_own_limit(tmp_path: Path) -> None:
    bridge = NumbersBridge(10)
    source = source_of(bridge, tmp_path)
    found = [look(source, None)]
    for _ in range(3):
        found.append(look(source, found[-1].state))
    assert [len(discovery.splits) for discovery in found] == [2, 2, 2, 0]
    assert bridge.begun == [0, 4, 8]
    assert numbers(source, *found) == list(range(10))
    assert len({split.split_id for discovery in found for split in discovery.splits}) == 6


def test_every_position_can_be_gone_on_from(tmp_path: Path) -> None:
    check_replay(source_of(NumbersBridge(7, limit=3), tmp_path), max_rows=2)


def test_a_lost_look_is_made_again_and_what_it_staged_goes(tmp_path: Path) -> None:
    bridge = NumbersBridge(8)
    first_driver = source_of(bridge, tmp_path)
    first = look(first_driver, None)
    look(first_driver, first.state)
    assert directories(tmp_path) == [0, 1]
    bridge.there = 6
    second_driver = source_of(bridge, tmp_path)
    again = look(second_driver, through_json(first.state))
    assert directories(tmp_path) == [0, 1], "of the lost look nothing is left"
    assert numbers(second_driver, first, again) == list(range(6))


def test_what_is_read_is_let_go_and_what_is_not_stays(tmp_path: Path) -> None:
    bridge = NumbersBridge(12)
    source = source_of(bridge, tmp_path)
    first = look(source, None)
    second = look(source, first.state)
    third = look(source, second.state)
    source.committed(through_json(second.state))
    assert directories(tmp_path) == [2]
    assert bridge.told == ["8"]
    assert numbers(source, third) == [8, 9, 10, 11]
    with pytest.raises(DataError, match=r"part-0\.parquet was listed but is gone"):
        numbers(source, first)


def test_a_frozen_source_stages_what_is_there_and_is_finished(tmp_path: Path) -> None:
    bridge = NumbersBridge(9)
    source = source_of(bridge, tmp_path)
    first = look(source, None)
    source.freeze()
    bridge.there = 20
    last = look(source, first.state)
    assert last.finished
    assert numbers(source, first, last) == list(range(9))
    later = source_of(bridge, tmp_path)
    assert numbers(later, look(later, through_json(last.state))) == [9, 10, 11, 12]


def test_a_source_with_nothing_new_is_finished_when_it_is_frozen(tmp_path: Path) -> None:
    source = source_of(NumbersBridge(4), tmp_path)
    first = look(source, None)
    source.freeze()
    assert look(source, first.state) == Discovery((), first.state, finished=True)


def test_the_lane_stays_on_the_driver_and_is_stopped_once(tmp_path: Path) -> None:
    bridge = NumbersBridge(4)
    source = source_of(bridge, tmp_path)
    first = look(source, None)
    assert numbers(source, first) == [0, 1, 2, 3], "readers come from a copy without the lane"
    source.close()
    source.close()
    assert bridge.told == ["stop"]
