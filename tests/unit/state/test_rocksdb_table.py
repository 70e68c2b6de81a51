"""The rocksdb backend: the kit's contract, and what is its own."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.state.rocksdb_table import RocksDBBackend, RocksDBTable
from penstock.state.table import StoredRows, TableSpec
from penstock.testing.table_kit import CHECKS, Check, run_check
from tests.support.state.dict_table import DictBackend

pytestmark = pytest.mark.slow

MIB = 1 << 20
LAST = 127
COUNTS = TableSpec(pa.schema([("key", pa.int64()), ("count", pa.int64())]), 1, 128)
TIMES = TableSpec(pa.schema([("at", pa.timestamp("us")), ("count", pa.int64())]), 1, 128, event_time=(0,))


@pytest.fixture
def make_backend(tmp_path: Path) -> Callable[[], RocksDBBackend]:
    return partial(RocksDBBackend, 8 * MIB, str(tmp_path))


@pytest.fixture
def backend(make_backend: Callable[[], RocksDBBackend]) -> Iterator[RocksDBBackend]:
    backend = make_backend()
    yield backend
    backend.close()


def write(table: RocksDBTable, keys: pa.Array, value: int) -> None:
    with table.edit([keys], len(keys)) as edited:
        data, valid = edited.values[0].write()
        data[edited.rows], valid[edited.rows] = value, True


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("some_shapes")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_it_keeps_the_contract(check: Check, make_backend: Callable[[], RocksDBBackend], tmp_path: Path) -> None:
    run_check(check, make_backend)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["values of every type"])
def test_what_it_captured_another_backend_loads_and_the_other_way_round(
    name: str, make_backend: Callable[[], RocksDBBackend]
) -> None:
    check = next(check for check in CHECKS if check.name == name)
    run_check(check, make_backend, DictBackend)
    run_check(check, DictBackend, make_backend)


def test_its_folder_goes_with_it_even_while_a_capture_is_being_read(
    make_backend: Callable[[], RocksDBBackend], tmp_path: Path
) -> None:
    backend = make_backend()
    table = backend.create_table("t", COUNTS)
    write(table, pa.array(range(50_000)), 1)
    capture = table.capture()
    started, closed = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        batches = capture.base(0, LAST)
        next(batches)
        started.set()
        closed.wait(10)
        try:
            next(batches)
        except RuntimeError as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    started.wait(10)
    backend.close()
    backend.close()
    closed.set()
    reader.join(10)
    assert len(errors) == 1
    assert not list(tmp_path.iterdir())


def test_a_view_outlives_flushes_and_compactions(backend: RocksDBBackend) -> None:
    table = backend.create_table("t", COUNTS)
    keys = pa.array(range(100_000))
    write(table, keys, 1)
    capture = table.capture()
    for value in range(2, 6):  # several times the write buffers
        write(table, keys, value)
    table.remove([keys.slice(0, 50_000)], 50_000)
    base = pa.Table.from_batches(capture.base(0, LAST))
    assert base.num_rows == 100_000
    assert base.column("count").unique().to_pylist() == [1]
    assert len(table) == 50_000


def test_index_entries_of_forgotten_captures_go(backend: RocksDBBackend) -> None:
    table = backend.create_table("t", COUNTS)
    write(table, pa.array(range(10_000)), 0)
    for value in range(1, 20):
        capture = table.capture()
        capture.forget_before()
        capture.release()
        write(table, pa.array(range(100)), value)
    table.capture().release()
    kept = [key for block in table._changes.view().blocks(b"", None) for key, _ in block]
    assert len(kept) == 100


def test_what_nobody_forgets_stays_bounded_by_the_table(backend: RocksDBBackend) -> None:
    table = backend.create_table("t", COUNTS)
    write(table, pa.array(range(6_000)), 0)
    first = table.capture()
    for value in range(1, 100):
        write(table, pa.array(range(1_000)), value)
        last = table.capture()
        assert last.changed_since(last.serial - 1) == 1_000
        last.release()
    kept = sum(len(block) for block in table._changes.view().blocks(b"", None))
    assert 1_000 <= kept <= 6_000
    assert first.changed_since(first.serial) == 0


def test_deltas_of_a_table_that_turns_over_are_not_kept(backend: RocksDBBackend) -> None:
    table = backend.create_table("t", COUNTS)
    write(table, pa.array(range(10)), 0)
    before = table.capture()
    for start in range(100, 20_000, 1_000):
        keys = pa.array(range(start, start + 1_000))
        write(table, keys, 1)
        table.remove([keys], 1_000)
    after = table.capture()
    assert after.changed_since(before.serial) is None
    assert not list(table._changes.view().blocks(b"", None))
    write(table, pa.array([1]), 2)
    assert table.capture().changed_since(after.serial) == 1


def test_a_key_that_changes_often_between_two_captures_is_recorded_once(backend: RocksDBBackend) -> None:
    table = backend.create_table("t", COUNTS)
    write(table, pa.array(range(100)), 0)
    before = table.capture()
    for value in range(50):
        write(table, pa.array(range(10)), value)
    assert table.capture().changed_since(before.serial) == 10


def test_looking_for_due_rows_reads_nothing_if_none_is_due(
    backend: RocksDBBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = backend.create_table("t", TIMES)
    write(table, pa.array(range(1_000, 2_000), pa.timestamp("us")), 1)
    assert sum(len(step.rows) for step in table.take_due(1_499, 100)) == 500
    monkeypatch.setattr(table._times, "view", None)
    assert not list(table.take_due(1_499, 100))
    monkeypatch.undo()
    write(table, pa.array([7], pa.timestamp("us")), 1)  # earlier than what was taken
    assert [step.keys[0].cast(pa.int64()).to_pylist() for step in table.take_due(1_500, 100)] == [[7, 1_500]]


def test_write_buffers_and_blocks_stay_within_the_memory(make_backend: Callable[[], RocksDBBackend]) -> None:
    backend = make_backend()
    table = backend.create_table("t", COUNTS)
    order = np.random.default_rng(1).permutation(400_000)
    for start in range(0, len(order), 20_000):
        write(table, pa.array(order[start : start + 20_000]), 1)
        assert backend._store._cache.get_usage() <= 10 * MIB
    assert sum(len(step.rows) for step in table.scan(10_000)) == 400_000
    assert backend._store._cache.get_usage() <= 10 * MIB
    backend.close()
    gc.collect()


def test_a_loaded_table_tells_what_changed_since(backend: RocksDBBackend) -> None:
    table = backend.create_table("t", COUNTS)
    write(table, pa.array(range(1_000)), 1)
    pieces = [StoredRows(batch, False) for batch in table.capture().base(0, LAST)]
    loaded = backend.create_table("u", COUNTS)
    loaded.load(pieces)
    write(loaded, pa.array([1, 2]), 2)
    loaded.remove([pa.array([3])], 1)
    assert loaded.capture().changed_since(0) == 3
