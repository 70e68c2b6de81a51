"""Independent parts of an export: one subtask's part of a table, or the in-flight rows to one consumer.

A job is plain data, so that any process with access to both stores can run it: threads, or Spark's executors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptSnapshot, NotSupported
from penstock.model.manifest import InflightEntry, StateEntry
from penstock.snapshots.format.sections import BatchMetadata, SectionContent, read_content
from penstock.snapshots.portable.columns import declared_schema, parquet_schema, portable_columns
from penstock.snapshots.portable.files import NewFile
from penstock.snapshots.portable.layout import PLACE, FileRef
from penstock.snapshots.portable.tables import merged_rows
from penstock.snapshots.progress_meter import Meter
from penstock.snapshots.restoring.narrowing import consumer_row_positions
from penstock.snapshots.restoring.widening import as_schema
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.checkpoint_writer import BUFFER_ID, BUFFER_OFFSET

ROW_GROUP_BYTES = 16 << 20
ROW_GROUP_ROWS = 1 << 18
"""Limits of a row group.

The limit in bytes is approximate. The limit in rows also applies to a batch of in-flight rows. A reader of few key
groups reads at least one row group.
"""

EntryPosition = tuple[int, int, int]
"""Position of an in-flight entry in the metadata; see ``layout.PLACE``."""


@dataclass(frozen=True)
class WrittenFile:
    """File of the directory, with its number of rows."""

    rows: int
    file: FileRef


@dataclass(frozen=True)
class TableJob:
    """Job that writes one subtask's part of a table as Parquet.

    Attributes:
        path: path of the new file.
        schema: schema of the rows, ``__key_group`` first.
        keys: number of key columns, which follow ``__key_group``; None if it is unknown.
        range_bytes: approximate number of bytes held in memory.
    """

    path: str
    entries: Sequence[StateEntry]
    schema: pa.Schema
    keys: int | None
    range_bytes: int

    @property
    def stored_rows(self) -> int:
        """Number of rows to read. Fewer rows are written if some were changed or deleted."""
        return sum(entry.rows for entry in self.entries)

    def write(self, source: Store, target: Store, meter: Meter | None = None) -> WrittenFile:
        """Write the file. ``meter`` counts the written rows, at most ``stored_rows``.

        Raises CorruptSnapshot, FileNotFoundError, NotSupported, OSError.
        """
        as_parquet = parquet_schema(self.schema, portable_columns(self.schema))
        rows = 0
        with NewFile(target, self.path) as file:
            try:
                with pq.ParquetWriter(
                    pa.PythonFile(file, mode="w"),
                    as_parquet,
                    compression="none",
                    use_dictionary=False,
                    use_compliant_nested_type=False,  # Compliant nested types would rename the elements of lists.
                ) as writer:
                    for table in merged_rows(source, self.entries, self.schema, self.keys, self.range_bytes):
                        row_group_size = min(
                            ROW_GROUP_ROWS, max(1, ROW_GROUP_BYTES * table.num_rows // (table.nbytes + 1))
                        )
                        writer.write_table(table.rename_columns(as_parquet.names), row_group_size=row_group_size)
                        rows += table.num_rows
                        if meter is not None:
                            meter.add(table.num_rows)
            except pa.ArrowNotImplementedError as error:
                raise NotSupported(f"a table with these columns cannot be written as Parquet: {error}") from error
        return WrittenFile(rows, file.ref())


@dataclass(frozen=True)
class StreamJob:
    """Job that writes the in-flight rows of one exchange to one consumer as an Arrow stream.

    Attributes:
        columns: columns of the exchange, as the plan declares them.
        keys: names of the columns that partition the rows.
        entries: at least one entry, in restore order. Of a narrowed entry, only the consumer's rows are written.
    """

    path: str
    exchange: str
    columns: Sequence[str]
    keys: Sequence[str]
    max_parallelism: int
    entries: Sequence[tuple[EntryPosition, InflightEntry]]

    @property
    def stored_rows(self) -> int:
        return sum(entry.rows for _, entry in self.entries)

    def write(self, source: Store, target: Store, meter: Meter | None = None) -> WrittenFile:
        """Write the file. ``meter`` counts ``stored_rows``.

        Raises CorruptSnapshot, FileNotFoundError, OSError.
        """
        rows = 0
        with NewFile(target, self.path) as file:
            writer: pa.RecordBatchStreamWriter | None = None
            for entry_position, entry in self.entries:
                content = read_content(source, entry.section)
                if writer is None:
                    schema = declared_schema(self.columns, content.schema, f"exchange {self.exchange}")
                    writer = pa.ipc.new_stream(pa.PythonFile(file, mode="w"), schema)
                for batch, metadata in self._own(content, entry):
                    described = {**metadata, **_entry_text(entry_position, entry)}
                    writer.write_batch(as_schema(batch, schema), custom_metadata=described)
                    rows += batch.num_rows
                if meter is not None:
                    meter.add(entry.rows)
            assert writer is not None
            writer.close()
        return WrittenFile(rows, file.ref())

    def _own(self, content: SectionContent, entry: InflightEntry) -> Iterator[tuple[pa.RecordBatch, BatchMetadata]]:
        """Yield the consumer's rows of an entry, without empty batches.

        A batch from which rows of other consumers were removed has no position in a buffer.
        """
        for batch, metadata in _entry_rows(content, entry):
            if not entry.narrowed:
                yield batch, metadata
                continue
            keys = [batch.schema.names.index(key) for key in self.keys]
            own = consumer_row_positions(batch, keys, self.max_parallelism, entry)
            if len(own):
                yield batch.take(pa.array(own)), {}


Job = TableJob | StreamJob
RunJobs = Callable[[Sequence[Job], Store, Store, Meter], list[WrittenFile]]
"""Runs jobs from one store to another. Returns results in the order of the jobs. The meter counts their stored rows."""


def run_in_threads(jobs: Sequence[Job], source: Store, target: Store, meter: Meter) -> list[WrittenFile]:
    """Run jobs in as many threads as there are processors. This is fast because pyarrow and numpy release the GIL."""

    def carried_out(job: Job) -> WrittenFile:
        part = meter.part(job.stored_rows)
        written = job.write(source, target, part)
        part.finish()
        return written

    with ThreadPoolExecutor(max(1, min(len(jobs), os.cpu_count() or 1))) as pool:
        futures = [pool.submit(carried_out, job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _entry_text(position: EntryPosition, entry: InflightEntry) -> dict[str, str]:
    return {
        PLACE: ":".join(map(str, position)),
        "producer": str(entry.producer),
        "consumer": str(entry.consumer),
        "layer": str(entry.layer),
        "side": entry.side,
        "key_group_first": str(entry.key_group_first),
        "key_group_last": str(entry.key_group_last),
        "narrowed": "false",
    }


def _entry_rows(content: SectionContent, entry: InflightEntry) -> Iterator[tuple[pa.RecordBatch, BatchMetadata]]:
    """Yield the rows of an entry with their positions in buffers."""
    position, end = 0, entry.row_start + entry.rows
    for batch, custom in zip(content.batches, content.metadata, strict=True):
        buffer, offset = custom.get(BUFFER_ID, ""), int(custom.get(BUFFER_OFFSET, "0"))
        last = min(end - position, batch.num_rows)
        for first in range(max(entry.row_start - position, 0), last, ROW_GROUP_ROWS):
            rows = min(ROW_GROUP_ROWS, last - first)
            yield batch.slice(first, rows), {BUFFER_ID: buffer, BUFFER_OFFSET: str(offset + first)}
        position += batch.num_rows
    if position < end:
        raise CorruptSnapshot(f"section {entry.section.identity!r} has {position} rows; {end} are referred to")
