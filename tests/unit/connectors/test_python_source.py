"""Python data sources as sources: replay from every position, verified prefixes, threads that never block a poll."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.connectors.python.reader import PATIENCE_MS, QUEUED_ROWS
from penstock.connectors.python.row_checksum import RowChecksum
from penstock.connectors.python.source import PythonSource
from penstock.errors import DataError, FunctionError, NotSupported
from tests.support.connectors import user_sources
from tests.support.connectors.kits import check_replay, discover_all, new_reader, read_rows, rows_of, stored

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
SPARK_SCHEMA = StructType().add("n", "long").add("s", "string").json()


def source(cls: Any, **options: str) -> PythonSource:
    return PythonSource(cls.__name__.lower(), cls, options, SCHEMA, SPARK_SCHEMA)


def rows(count: int) -> list[tuple[int, str]]:
    return [(n, str(n)) for n in range(count)]


@pytest.mark.parametrize("yields", ["tuple", "row", "batch"])
def test_replay_from_every_position(yields: str) -> None:
    assert check_replay(source(user_sources.Counter, end="24", yields=yields), max_rows=4) == rows(24)


def test_both_signatures_of_latest_offset() -> None:
    assert check_replay(source(user_sources.Limited, end="9"), steps=3) == rows(9)


def test_a_factory_function_makes_the_data_source() -> None:
    made = PythonSource("c", lambda: user_sources.Counter({"END": "5"}), {}, SCHEMA, SPARK_SCHEMA)
    assert check_replay(made, steps=2) == rows(5)


def test_splits_hold_offsets_only() -> None:
    first = source(user_sources.Counter, end="10").discover(None, 2)
    assert [split.split_id for split in first.splits] == ["0/0", "0/1"]
    assert first.splits[1].spec == {
        "kind": "range", "range": 0, "start": {"n": 0}, "end": {"n": 10}, "partition": 1, "partitions": 2
    }  # fmt: skip


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("values", "the first 3 rows differ from those read before"),
        ("fewer", "yields 2 rows now where it had yielded 3 before"),
        ("partitions", "gave 2 partitions first and 1 now"),
    ],
)
def test_a_source_that_is_not_replayable_is_named(tmp_path: Path, how: str, message: str) -> None:
    unstable = source(user_sources.Unstable, end="10", how=how, state=str(tmp_path / "state"))
    split = discover_all(unstable)[0]
    reader = new_reader(unstable)
    reader.add_split(split)
    assert len(read_rows(reader, limit=3)) == 3
    again = new_reader(unstable)
    again.add_split(stored(reader.snapshot()[0]))
    with pytest.raises(DataError, match=f"source unstable is not replayable: split 0/0.*{message}"):
        read_rows(again)


def test_a_position_inside_the_verified_prefix_is_the_old_one() -> None:
    counter = source(user_sources.Counter, end="10")
    split = discover_all(counter)[0]
    reader = new_reader(counter)
    reader.add_split(split)
    read_rows(reader, limit=3)
    position = stored(reader.snapshot()[0])
    again = new_reader(counter)
    again.add_split(position)
    assert stored(again.snapshot()[0]) == position
    again.poll(1, 0)
    assert again.snapshot()[0].position["rows"] in (3, 4)


def test_user_errors_come_with_place_and_traceback() -> None:
    reader = new_reader(failing := source(user_sources.Counter, end="20", yields="fails"))
    for split in discover_all(failing):
        reader.add_split(split)
    with pytest.raises(FunctionError, match="ValueError: seven") as caught:
        read_rows(reader)
    assert caught.value.operator == "source counter"
    assert caught.value.position == "split 0/1, row 2"
    assert "user_sources.py" in caught.value.user_traceback


@pytest.mark.parametrize(
    ("yields", "message"), [("wide", "a row of 3 values for 2 columns"), ("text", "yielded a str")]
)
def test_rows_that_do_not_fit_are_named(yields: str, message: str) -> None:
    reader = new_reader(wrong := source(user_sources.Counter, end="5", yields=yields))
    reader.add_split(discover_all(wrong)[0])
    with pytest.raises(DataError, match=message):
        read_rows(reader)


def test_a_failing_driver_side_names_the_source() -> None:
    with pytest.raises(FunctionError, match="source counter raised KeyError"):
        source(user_sources.Counter).discover(None, 1)


def test_a_source_of_batches_only_is_refused_by_name() -> None:
    class Batches(DataSource):
        def reader(self, schema: StructType) -> Any:
            raise NotImplementedError

    with pytest.raises(NotSupported, match=r"batches cannot be streamed: its class Batches has neither"):
        source(Batches)


@pytest.fixture
def may_go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """File for which ``user_sources.Slow`` waits before each row."""
    made = threading.Semaphore(0)
    monkeypatch.setattr(user_sources.SlowReader, "may_go_on", made)
    yield made
    made.release(10)


def test_poll_never_blocks_and_rows_come_one_by_one(may_go_on: threading.Semaphore) -> None:
    reader = new_reader(slow := source(user_sources.Slow, end="6"))
    reader.add_split(discover_all(slow)[0])
    for row in rows(3):
        assert reader.poll(100, 0) is None, "it has waited until there was a row"
        may_go_on.release()
        deadline = time.monotonic() + 30
        while (batch := reader.poll(100, 0)) is None:
            assert time.monotonic() < deadline, "a row is held back until others come"
            time.sleep(0.005)
        assert rows_of(batch) == [row]
    may_go_on.release(10)
    reader.close()


def test_a_reader_without_rows_is_looked_at_again_soon_and_then_less_often(may_go_on: threading.Semaphore) -> None:
    reader = new_reader(slow := source(user_sources.Slow, end="6"))
    assert reader.wake_after_ms() == PATIENCE_MS
    reader.add_split(discover_all(slow)[0])

    for _ in range(2):
        looks = [(reader.poll(100, 0), reader.wake_after_ms()) for _ in range(6)]
        assert looks == [(None, wake) for wake in (1, 2, 4, 8, PATIENCE_MS, PATIENCE_MS)]
        may_go_on.release()
        deadline = time.monotonic() + 30
        while reader.poll(100, 0) is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    may_go_on.release(10)
    reader.close()


def test_the_queue_is_bounded_and_threads_end() -> None:
    reader = new_reader(many := source(user_sources.Counter, end=str(10)))
    split = discover_all(many)[0]
    endless = {**split.spec, "start": {"n": 0}, "end": {"n": 10_000_000}}
    reader.add_split(type(split)(split.split_id, endless))
    assert len(read_rows(reader, limit=10)) == 10
    prefetch = reader._current._prefetch
    deadline = time.monotonic() + 10
    while len(prefetch._items) + 10 < QUEUED_ROWS and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)  # it goes on no further
    assert QUEUED_ROWS <= len(prefetch._items) + 10 <= QUEUED_ROWS + 1000
    reader.close()
    assert not any(thread.name.startswith("penstock-read-counter") for thread in threading.enumerate())


def test_splits_that_were_read_leave_nothing_to_the_garbage_collector() -> None:
    """A fast source has a hundred a second: what they left would stop the slot for 20 ms every few seconds."""
    first, *others = discover_all(many := source(user_sources.Counter, end="100"))
    reader = new_reader(many)
    reader.add_split(first)
    read_rows(reader)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)  # what other threads of this process leave is told from ours
    try:
        for split in others:
            reader.add_split(split)
        assert len(read_rows(reader)) > 90
        gc.collect()
        assert [thing for thing in gc.garbage if type(thing).__module__.startswith("penstock.")] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        reader.close()


def test_the_user_is_told_what_is_done_with() -> None:
    counter = source(user_sources.Counter, end="30")
    state = None
    for _ in range(2):
        state = counter.discover(state, 2).state
    counter.committed(state)
    assert counter._driver_reader.commits == [{"n": 20}]
    assert new_reader(counter) is not None, "the driver's reader does not travel"


def test_simple_reader_moves_along_and_replays(tmp_path: Path) -> None:
    file = tmp_path / "end"
    file.write_text("8")
    simple = source(user_sources.Simple, file=str(file))
    assert check_replay(simple, max_rows=2) == rows(8)
    reader = new_reader(simple)
    reader.add_split(discover_all(simple)[0])
    assert read_rows(reader) == rows(8)
    assert reader.caught_up()
    file.write_text("10")
    deadline = time.monotonic() + 10
    while reader.caught_up() and time.monotonic() < deadline:
        batch = reader.poll(10, 0)
        time.sleep(0.01)
    assert rows_of(batch) == [(8, "8"), (9, "9")]
    reader.close()


def test_checksums_do_not_depend_on_batches() -> None:
    kinds = {
        "i": pa.int32(), "b": pa.bool_(), "s": pa.string(), "n": pa.binary(), "d": pa.decimal128(10, 2),
        "t": pa.timestamp("us", "UTC"), "l": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.int64()),
        "st": pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64()))]), "z": pa.null(),
    }  # fmt: skip
    values = [
        {"i": i, "b": i % 2 == 0, "s": "x" * i, "n": b"y" * (i % 3), "d": i, "t": i, "l": [str(i)] * (i % 3),
         "m": [(str(i), i)], "st": {"x": i, "y": [0.5] * (i % 2)}, "z": None}
        for i in range(20)
    ]  # fmt: skip
    for i, name in enumerate(kinds):
        values[i + 3][name] = None
    batch = pa.RecordBatch.from_pylist(values, pa.schema(list(kinds.items())))
    whole = RowChecksum()
    whole.update(batch)
    for size in (1, 3, 7):
        cut = RowChecksum()
        for start in range(0, 20, size):
            cut.update(batch.slice(start, size))
        assert cut.hexdigest() == whole.hexdigest()
    for name in ("i", "s", "l", "m", "st", "d"):
        changed = [dict(row) for row in values]
        changed[15][name] = values[16][name]
        other = RowChecksum()
        other.update(pa.RecordBatch.from_pylist(changed, batch.schema))
        assert other.hexdigest() != whole.hexdigest(), name


def test_batches_of_other_sizes_are_the_same_rows(tmp_path: Path) -> None:
    size = tmp_path / "rows"
    size.write_text("10")
    batches = source(user_sources.Batches, end="40", yields=str(size))
    got: list[tuple[Any, ...]] = []
    for split in discover_all(batches):
        for cut in range(1, 5):
            size.write_text("10")
            reader = new_reader(batches)
            reader.add_split(split)
            before = read_rows(reader, limit=cut)
            (left,) = reader.snapshot()
            size.write_text("3")
            again = new_reader(batches)
            again.add_split(stored(left))
            got += before + read_rows(again)
    assert sorted(got, key=repr) == sorted(4 * [(None if n % 3 == 0 else n, "x" * n) for n in range(40)], key=repr)
