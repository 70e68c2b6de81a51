"""Rows of one table, sorted by key group, as base sections of a data file: what a conversion or a Spark job writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.model.manifest import StateEntry
from penstock.snapshots.format.sections import SectionWriter
from penstock.snapshots.writing.state_index import BASE
from penstock.snapshots.writing.state_sections import cut


def append_rows(
    writer: SectionWriter,
    prefix: str,
    operator_id: str,
    table: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[StateEntry]:
    """Write as many sections as it takes, none for no batches; the entries are valid once the writer is closed.

    Args:
        prefix: what their identities begin with; unique for this table and file.
        batches: by key group ascending, none empty. No key group may be in two files of one table.

    Raises:
        CheckpointFailed: the store fails.
    """
    for content in cut(batches):
        section = writer.append(f"{prefix}/{writer.written:x}", schema, ((batch, None) for batch in content))
        yield StateEntry(operator_id, table, BASE, content.rows, content.first, content.last, section)


def append_nothing(writer: SectionWriter, prefix: str, operator_id: str, table: str, schema: pa.Schema) -> StateEntry:
    """That a table is empty."""
    section = writer.append(f"{prefix}/{writer.written:x}", schema, ())
    return StateEntry(operator_id, table, BASE, 0, 0, -1, section)
