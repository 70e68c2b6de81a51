"""Base sections of one table, with rows sorted by key group, as conversions and Spark jobs write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.model.manifest import StateEntry
from penstock.snapshots.format.sections import SectionWriter
from penstock.snapshots.writing.state_index import BASE
from penstock.snapshots.writing.state_sections import split_into_sections


def append_rows(
    writer: SectionWriter,
    prefix: str,
    operator_id: str,
    table: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[StateEntry]:
    """Write the sections of a table; none if there are no batches. The entries are valid after the writer is closed.

    Args:
        prefix: prefix of the sections' identities, unique for this table and file.
        batches: by ascending key group, none empty. No key group may be in two files of one table.

    Raises:
        CheckpointFailed: the store fails.
    """
    for content in split_into_sections(batches):
        section = writer.append(f"{prefix}/{writer.written:x}", schema, ((batch, None) for batch in content))
        yield StateEntry(operator_id, table, BASE, content.rows, content.first, content.last, section)


def append_empty_table(
    writer: SectionWriter, prefix: str, operator_id: str, table: str, schema: pa.Schema
) -> StateEntry:
    """Write a section without rows, which records that the table is empty."""
    section = writer.append(f"{prefix}/{writer.written:x}", schema, ())
    return StateEntry(operator_id, table, BASE, 0, 0, -1, section)
