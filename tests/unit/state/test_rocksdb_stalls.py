"""RocksDB stops writes while flushes and compactions lag: they are waited for, but not for ever if these fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import Rdict, WriteBatch

from penstock.errors import ResourceError
from penstock.state.rocksdb_store import ColumnFamily, RocksStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    made = RocksStore(8 << 20, str(tmp_path))
    yield made
    made.close()


def put(store: RocksStore, family: ColumnFamily) -> None:
    batch = family.target(WriteBatch(raw_mode=True))
    batch.put(b"key", b"value")
    store.write(batch)


def delete(store: RocksStore, family: ColumnFamily) -> None:
    family.delete_range(b"key", b"kez")


@pytest.fixture
def stopped(store: RocksStore) -> ColumnFamily:
    """A family whose writes are stopped because it has one file."""
    family = store.create_family("rows")
    family._rows.set_options({"level0_file_num_compaction_trigger": "9", "level0_stop_writes_trigger": "1"})
    put(store, family)
    family._rows.flush()
    return family


@pytest.mark.parametrize("write", [put, delete])
def test_a_stopped_write_waits_until_rocksdb_has_room(
    store: RocksStore, stopped: ColumnFamily, write: Callable[[RocksStore, ColumnFamily], None]
) -> None:
    """Other threads run meanwhile."""
    writing = threading.Thread(target=write, args=(store, stopped))
    writing.start()
    time.sleep(0.1)
    assert writing.is_alive()
    stopped._rows.set_options({"level0_stop_writes_trigger": "9"})
    writing.join(30)
    assert not writing.is_alive()
    assert stopped.get([b"key"]) == [b"value" if write is put else None]


@pytest.mark.parametrize("write", [put, delete])
def test_a_write_that_waits_for_a_failing_disk_is_an_error_that_names_the_folder(
    store: RocksStore,
    stopped: ColumnFamily,
    write: Callable[[RocksStore, ColumnFamily], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert store._db is not None
    monkeypatch.setattr(store, "_db", Failing(store._db))
    with pytest.raises(ResourceError, match=rf"disk in {store.path}: 2 flushes or .* bytes are free; free disk space"):
        write(store, stopped)


class Failing:
    """A database of which two flushes have failed."""

    def __init__(self, db: Rdict) -> None:
        self.write = db.write

    def property_int_value(self, name: str) -> int:
        assert name == "rocksdb.background-errors"
        return 2
