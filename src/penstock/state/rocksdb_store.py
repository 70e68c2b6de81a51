"""One RocksDB database as a scratch area: column families of byte strings, within a given memory, gone with its folder.

It never holds the truth (a snapshot does): nothing is logged ahead or synced, and nothing is flushed when it closes.
``rocksdict``'s objects may be used on any thread and its calls leave the interpreter to other threads only in part;
iterators keep the database itself open for as long as they live.
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
"""Below, a write buffer is hardly larger than its arenas' blocks."""

_BLOOM_BITS = 10
"""One in a hundred keys that are not there costs a read: what RocksDB's wiki proposes."""

_TARGET_FILE_BYTES = 32 << 20
_OPEN_FILES = 512
"""Of ``_TARGET_FILE_BYTES`` each: 16 GiB at once, without a limit of the process coming near."""

_BACKGROUND_JOBS = 2
_BLOCK_BYTES = 4 << 20
"""What ``blocks`` aims at."""

_STALL = "Write stall"
"""In the text of the error if a write would have to wait."""
_PAUSE_S = 0.001

_FIRST_BLOCK_ROWS = 256
MAX_BLOCK_ROWS = 16384

Block: TypeAlias = list[tuple[bytes, bytes]]
"""Keys and values."""


class RocksStore:
    """A new, empty database.

    Write buffers take at most half of ``memory_bytes``; they and the blocks read, filters and indexes included (these
    in partitions, so that no single one crowds out a cache shard), are charged to one cache of ``memory_bytes``. Not
    bounded by it, because RocksDB or rocksdict offers no handle: blocks that running iterators pin, the read and write
    buffers of up to two compactions (some MiB each), a few KiB for each of at most 512 open files, what the allocator
    keeps, and for a moment the write buffer that a large batch overfills.
    """

    def __init__(self, memory_bytes: int, folder: str | None = None) -> None:
        """``folder``: where to make the private one; the system's temporary folder by default."""
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

    def create_family(self, name: str) -> Family:
        assert self._db is not None
        with _on_disk(self.path):
            rows = self._db.create_column_family(name, self._family_options())
        rows.set_write_options(self._write_options)
        return Family(self, self._db, name, rows)

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
        """All of it or nothing.

        Raises:
            ResourceError: the disk is full or fails.
        """
        assert self._db is not None
        with _on_disk(self.path):
            self.await_room()
            self._db.write(batch, self._write_options)

    def await_room(self) -> None:
        """Wait while RocksDB has stopped writes, until it has flushed or compacted enough.

        A write would wait as well, but holds the interpreter's lock meanwhile. And it would wait for ever: on a full
        disk RocksDB tries its flushes again and again.

        Raises:
            OSError: a flush or compaction has failed, so nothing may let the writes go on.
        """
        assert self._db is not None
        while not self._has_room(self._db):
            if failures := self._db.property_int_value("rocksdb.background-errors"):
                free = shutil.disk_usage(self.path).free
                raise OSError(f"{failures} flushes or compactions failed; {free:,} bytes are free")
            time.sleep(_PAUSE_S)

    def _has_room(self, db: Rdict) -> bool:
        """Ask by an empty batch: RocksDB consumes each batch, so one that it does not take is lost."""
        try:
            db.write(WriteBatch(raw_mode=True), self._at_once)
        except Exception as error:
            if _STALL in str(error):
                return False
            raise
        return True

    def close(self) -> None:
        """The folder goes; what still reads a view reads on to its end. Idempotent."""
        db, self._db = self._db, None
        if db is None:
            return
        try:
            db.close()
        except Exception as error:  # noqa: BLE001 - rocksdict has no type of its own
            # It failed before, or cannot write its buffer, which is not needed any more.
            log.warning("state on local disk in %s: closing it failed: %s", self.path, error)
        finally:
            self._folder.close()


@contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    """Add the path to RocksDB's errors, which do not always have it."""
    try:
        yield
    except Exception as error:
        raise ResourceError(f"state on local disk in {path}: {error}; free disk space there") from error


class Family:
    """One column family: byte strings by byte string, in the order of their bytes."""

    def __init__(self, store: RocksStore, db: Rdict, name: str, rows: Rdict) -> None:
        self._store = store
        self._db = db
        self._name = name
        self._rows = rows
        self._handle = db.get_column_family_handle(name)

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """The value of each key; keys in order are found quicker."""
        found: list[bytes | None] = self._rows.get(keys)  # type: ignore[arg-type, assignment]  # a list gives a list
        return found

    def target(self, batch: WriteBatch) -> WriteBatch:
        """The batch, whose next ``put`` and ``delete`` are meant for this family."""
        batch.set_default_column_family(self._handle)
        return batch

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Forget ``[start, stop)``, at once.

        Raises:
            ResourceError: as ``RocksStore.write``.
        """
        with _on_disk(self._store.path):
            self._store.await_room()
            self._rows.delete_range(start, stop)

    def view(self) -> View:
        """The content now. Several families' views are of one moment if nothing is written in between."""
        return View(self._rows)

    @property
    def buffered_bytes(self) -> int:
        """Of its write buffers."""
        return self._rows.property_int_value("rocksdb.cur-size-all-mem-tables") or 0

    def drop(self) -> None:
        """It and what it buffered go; views of it can still be read."""
        self._db.drop_column_family(self._name)


class View:
    """One moment of a family, on any thread, one at a time. It costs nothing to make and holds back the files and write
    buffers of that moment until it goes.

    It is a RocksDB iterator, moved to wherever something is to be read: those of rocksdict 0.3.29's ``Snapshot`` show
    what was written after the snapshot.
    """

    def __init__(self, rows: Rdict) -> None:
        self._iterator = rows.iter(ReadOptions())

    def blocks(self, start: bytes, stop: bytes | None, at_once: int = MAX_BLOCK_ROWS) -> Iterator[Block]:
        """Keys and values of ``[start, stop)``, ascending, at most ``at_once`` (and about 4 MiB) at a time, none empty.
        Several of these may take turns.

        Raises:
            Exception: what was to be read cannot be.
        """
        rows = min(at_once, _FIRST_BLOCK_ROWS)
        while block := self._block(start, stop, rows):
            size = sum(len(key) + len(value) for key, value in block)
            rows = min(at_once, MAX_BLOCK_ROWS, max(1, _BLOCK_BYTES * len(block) // max(size, 1)), 4 * rows)
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
        """The value of each key; all of them must be there.

        Raises:
            Exception: what was to be read cannot be.
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
