"""Temporary RocksDB database: column families of byte strings with a memory limit, in a folder that is removed.

Snapshots contain the durable state, so there is no write-ahead log, no sync, and no flush when the database is closed.
``rocksdict``'s objects may be used on any thread, but only some of its calls release the interpreter lock. Iterators
keep the database open as long as they exist.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from penstock.errors import ResourceError
from penstock.logs import get_logger
from penstock.state.scratch import ScratchFolder

log = get_logger(__name__)

_MIN_MEMORY_BYTES = 8 << 20
"""Minimum memory: with less, a write buffer is hardly larger than the blocks of its arena."""

_BLOOM_BITS = 10
"""Bits per key, as RocksDB's wiki proposes: one percent of the lookups of absent keys cost a read."""

_TARGET_FILE_BYTES = 32 << 20
_OPEN_FILES = 512
"""Limit for open files: 16 GiB of ``_TARGET_FILE_BYTES`` each, far below the limits of a process."""

_BACKGROUND_JOBS = 2
_BLOCK_BYTES = 4 << 20
"""Target size of ``View.blocks``."""

_STALL = "Write stall"
"""Part of the error message of a write that would have to wait."""
_PAUSE_S = 0.001

_FIRST_BLOCK_ROWS = 256
MAX_BLOCK_ROWS = 16384

Block: TypeAlias = list[tuple[bytes, bytes]]
"""Keys and values."""


class RocksStore:
    """New, empty database.

    One cache of ``memory_bytes`` is charged for write buffers, which take at most half of it, and for blocks that were
    read. These include filters and indexes, which are partitioned, so that none of them fills a cache shard.

    RocksDB and rocksdict cannot limit some memory: blocks pinned by running iterators, buffers of up to two compactions
    (some MiB each), a few KiB for each of up to 512 open files, memory that the allocator keeps, and temporarily a
    write buffer that a large batch overfills.

    Args:
        memory_bytes: size of the cache.
        folder: parent of the private folder, by default the system's temporary folder.
    """

    def __init__(self, memory_bytes: int, folder: str | None = None) -> None:
        memory_bytes = max(memory_bytes, _MIN_MEMORY_BYTES)
        self._folder = ScratchFolder(folder)
        self.path = self._folder.path
        self._cache = Cache(memory_bytes)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_manager(
            WriteBufferManager.new_write_buffer_manager_with_cache(memory_bytes // 2, False, self._cache)
        )
        options.set_max_open_files(_OPEN_FILES)
        options.set_max_background_jobs(_BACKGROUND_JOBS)
        options.set_keep_log_file_num(1)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        self._write_buffer_bytes = memory_bytes // 4
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]  # a property, really
        self._at_once = WriteOptions()
        self._at_once.disable_wal = True  # type: ignore[method-assign, assignment]
        self._at_once.no_slowdown = True
        try:
            with _on_disk(self.path):
                self._db: Rdict | None = Rdict(str(self.path), options)
        except ResourceError:
            self._folder.close()
            raise

    def create_family(self, name: str) -> ColumnFamily:
        assert self._db is not None
        with _on_disk(self.path):
            rows = self._db.create_column_family(name, self._family_options())
        rows.set_write_options(self._write_options)
        return ColumnFamily(self, self._db, name, rows)

    def _family_options(self) -> Options:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(_BLOOM_BITS, False)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_pin_top_level_index_and_filter(True)
        blocks.set_format_version(5)
        options = Options(raw_mode=True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(self._write_buffer_bytes)
        options.set_target_file_size_base(_TARGET_FILE_BYTES)
        options.set_compression_type(DBCompressionType.lz4())
        return options

    def write(self, batch: WriteBatch) -> None:
        """Write a batch atomically.

        Raises:
            ResourceError: the disk is full or fails.
        """
        assert self._db is not None
        with _on_disk(self.path):
            self.await_room()
            self._db.write(batch, self._write_options)

    def await_room(self) -> None:
        """Wait while RocksDB has stopped writes, until it has flushed or compacted enough.

        A write would also wait, but it would hold the interpreter lock. On a full disk it would wait for ever, because
        RocksDB repeats its flushes endlessly.

        Raises:
            OSError: a flush or compaction has failed, so writes may stay stopped.
        """
        assert self._db is not None
        while not self._has_room(self._db):
            if failures := self._db.property_int_value("rocksdb.background-errors"):
                free = shutil.disk_usage(self.path).free
                raise OSError(f"{failures} flushes or compactions failed; {free:,} bytes are free")
            time.sleep(_PAUSE_S)

    def _has_room(self, db: Rdict) -> bool:
        """Return True if RocksDB accepts writes now.

        It tries to write an empty batch, because RocksDB consumes every batch, so that a refused batch would be lost.
        """
        try:
            db.write(WriteBatch(raw_mode=True), self._at_once)
        except Exception as error:
            if _STALL in str(error):
                return False
            raise
        return True

    def close(self) -> None:
        """Close the database and remove its folder. Existing views can still be read. Idempotent."""
        db, self._db = self._db, None
        if db is None:
            return
        try:
            db.close()
        except Exception as error:  # noqa: BLE001 - rocksdict has no type of its own
            # The database failed before, or it cannot write its buffers, which are not needed.
            log.warning("state on local disk in %s: closing it failed: %s", self.path, error)
        finally:
            self._folder.close()


@contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    """Convert RocksDB's errors to ``ResourceError`` with the path, which they do not always contain."""
    try:
        yield
    except Exception as error:
        raise ResourceError(f"state on local disk in {path}: {error}; free disk space there") from error


class ColumnFamily:
    """Column family: a map of byte strings, ordered by the bytes of its keys."""

    def __init__(self, store: RocksStore, db: Rdict, name: str, rows: Rdict) -> None:
        self._store = store
        self._db = db
        self._name = name
        self._rows = rows
        self._handle = db.get_column_family_handle(name)

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the value of each key. Sorted keys are found faster."""
        found: list[bytes | None] = self._rows.get(keys)  # type: ignore[arg-type, assignment]  # a list gives a list
        return found

    def target(self, batch: WriteBatch) -> WriteBatch:
        """Return the batch, and direct its next ``put`` and ``delete`` to this column family."""
        batch.set_default_column_family(self._handle)
        return batch

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Remove all keys in ``[start, stop)``.

        Raises:
            ResourceError: as ``RocksStore.write``.
        """
        with _on_disk(self._store.path):
            self._store.await_room()
            self._rows.delete_range(start, stop)

    def view(self) -> View:
        """Return a view of the current content.

        Views of several families are consistent if there is no write between their creations.
        """
        return View(self._rows)

    @property
    def buffered_bytes(self) -> int:
        """Size of the write buffers in bytes."""
        return self._rows.property_int_value("rocksdb.cur-size-all-mem-tables") or 0

    def drop(self) -> None:
        """Drop the column family and its buffers. Views can still be read."""
        self._db.drop_column_family(self._name)


class View:
    """View of a column family at one moment, for one thread at a time.

    Its creation costs nothing. It retains the files and write buffers of the moment of its creation. It is a RocksDB
    iterator that seeks to the keys to be read. A ``Snapshot`` of rocksdict 0.3.29 cannot be used, because its iterators
    also show later writes.
    """

    def __init__(self, rows: Rdict) -> None:
        self._iterator = rows.iter(ReadOptions())

    def blocks(self, start: bytes, stop: bytes | None, batch_rows: int = MAX_BLOCK_ROWS) -> Iterator[Block]:
        """Yield keys and values of ``[start, stop)`` in ascending order, in blocks that are not empty.

        A block has at most ``batch_rows`` rows and about 4 MiB. Several of these iterators may be used alternately.

        Raises:
            Exception: the data cannot be read.
        """
        rows = min(batch_rows, _FIRST_BLOCK_ROWS)
        while block := self._block(start, stop, rows):
            size = sum(len(key) + len(value) for key, value in block)
            rows = min(batch_rows, MAX_BLOCK_ROWS, max(1, _BLOCK_BYTES * len(block) // max(size, 1)), 4 * rows)
            start = block[-1][0] + b"\0"
            yield block

    def _block(self, start: bytes, stop: bytes | None, rows: int) -> Block:
        iterator = self._iterator
        block: Block = []
        valid, key_of, value_of, advance = iterator.valid, iterator.key, iterator.value, iterator.next
        iterator.seek(start)
        while len(block) < rows and valid():
            key = key_of()
            if stop is not None and key >= stop:
                return block
            block.append((key, value_of()))
            advance()
        iterator.status()
        return block

    def values(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the value of each key. All keys must exist.

        Raises:
            Exception: the data cannot be read.
        """
        iterator, values = self._iterator, []
        seek, key_of, value_of = iterator.seek, iterator.key, iterator.value
        for key in keys:
            seek(key)
            if key_of() != key:
                iterator.status()
                raise RuntimeError("the RocksDB state lacks a row that its index names")
            values.append(value_of())
        return values


def keys_of(block: Block) -> list[bytes]:
    return [key for key, _ in block]
