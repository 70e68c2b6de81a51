"""The driver's side of a Python data source: limits, ends, what is called, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.connectors.python.source import EMPTY_RANGES, PythonSource
from penstock.errors import DataError
from penstock.model.splits import Discovery
from tests.support.connectors import user_sources
from tests.support.connectors.kits import discover_all, new_reader, read_rows

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
SPARK_SCHEMA = StructType().add("n", "long").add("s", "string").json()


@pytest.fixture
def end(tmp_path: Path) -> Path:
    path = tmp_path / "end"
    path.write_text("10")
    return path


def modern(end: Path, **options: str) -> PythonSource:
    return PythonSource("modern", user_sources.Modern, {"end": str(end), **options}, SCHEMA, SPARK_SCHEMA)


def calls(source: PythonSource) -> list[Any]:
    made: list[Any] = source._driver_reader.calls
    return made


def looks(source: PythonSource, state: Any = None) -> list[Discovery]:
    """Until one finds nothing, or says that it is the last."""
    found = [source.discover(state, 1)]
    while found[-1].splits and not found[-1].finished:
        found.append(source.discover(found[-1].state, 1))
    return found


def test_a_read_limit_bounds_every_range(end: Path) -> None:
    source = modern(end)
    ranges = [(split.spec["start"], split.spec["end"]) for split in discover_all(source)]
    assert ranges == [({"n": 0}, {"n": 4}), ({"n": 4}, {"n": 8}), ({"n": 8}, {"n": 10})]
    assert ("latestOffset", 4, "ReadMaxRows") in calls(source)


def test_ranges_without_partitions_are_passed_over(end: Path) -> None:
    (first, *_) = looks(modern(end, empty="8"))
    assert [split.spec["end"] for split in first.splits] == [{"n": 10}]
    assert first.state == {"offset": {"n": 10}, "range": 3}


def test_a_source_of_empty_ranges_only_does_not_hold_the_driver(end: Path) -> None:
    end.write_text("1000000")
    found = modern(end, empty="1000000").discover(None, 1)
    assert not found.splits
    assert found.state == {"offset": {"n": 4 * EMPTY_RANGES}, "range": EMPTY_RANGES}


def test_a_reader_of_old_learns_from_a_later_driver_where_it_is(end: Path) -> None:
    def planned() -> PythonSource:
        return PythonSource("planned", user_sources.Planned, {"end": "40"}, SCHEMA, SPARK_SCHEMA)

    first = planned()
    state = first.discover(None, 1).state
    later = planned()
    later.discover(later.discover(state, 1).state, 1)
    assert calls(first) == [(0, 10)]
    assert calls(later) == [(10, 10), (10, 20), (20, 30)]
    modern(end).discover({"offset": {"n": 4}, "range": 1}, 1)
    newer = modern(end)
    newer.discover({"offset": {"n": 4}, "range": 1}, 1)
    assert calls(newer) == [("latestOffset", 4, "ReadMaxRows"), ("partitions", 4, 8)], "it is given its start"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": "own"}, "getDefaultReadLimit returned a OwnLimit; Spark knows ReadAllAvailable, ReadMinRows"),
        ({"bad": "offset"}, "source modern: latestOffset returned 'n'; it must return a dict"),
        ({"bad": "partitions"}, r"source modern: partitions\({'n': 0}, {'n': 4}\) must return a list of InputPart"),
    ],
)
def test_what_spark_would_not_take_is_refused(end: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        modern(end, **options).discover(None, 1)


def test_rows_must_come_by_an_iterator(end: Path) -> None:
    source = modern(end, bad="list")
    reader = new_reader(source)
    reader.add_split(discover_all(source)[0])
    with pytest.raises(DataError, match=r"read returned a list; return an iterator, as iter\(rows\)"):
        read_rows(reader)
    reader.close()


def test_a_reader_that_prepares_is_read_within_its_limits_to_where_it_was(end: Path) -> None:
    source = modern(end, prepares="1")
    first = source.discover(None, 1)
    source.freeze()
    end.write_text("20")
    found = looks(source, first.state)
    assert [d.finished for d in found] == [False, False, True]
    assert [split.spec["end"] for d in found for split in d.splits] == [{"n": 8}, {"n": 10}]
    assert calls(source).count("prepare") == 1


def test_any_other_reader_is_read_in_one_range_without_limit(end: Path) -> None:
    source = modern(end)
    first = source.discover(None, 1)
    source.freeze()
    last = source.discover(first.state, 1)
    assert last.finished
    assert [(split.spec["start"], split.spec["end"]) for split in last.splits] == [({"n": 4}, {"n": 10})]
    assert calls(source)[-2:] == [("latestOffset", 4, "ReadAllAvailable"), ("partitions", 4, 10)]
    nothing = modern(end)
    nothing.freeze()
    assert nothing.discover(last.state, 1) == Discovery((), last.state, finished=True)


def test_behind_a_recovery_a_frozen_source_may_find_what_came_meanwhile(end: Path) -> None:
    source = modern(end, prepares="1")
    source.freeze()
    found = looks(source)
    end.write_text("12")
    source.freeze()
    assert [split.spec["end"] for d in looks(source, found[-1].state) for split in d.splits] == [{"n": 12}]


def test_what_a_reader_reports_is_for_progress(end: Path) -> None:
    source = modern(end)
    assert source.latest_offset() is None
    source.discover(None, 1)
    assert source.latest_offset() == {"n": 10}


def test_the_reader_is_stopped_with_the_query(end: Path) -> None:
    source = modern(end)
    source.discover(None, 1)
    made = calls(source)
    source.close()
    source.close()
    assert made[-1] == "stop"
    assert made.count("stop") == 1
