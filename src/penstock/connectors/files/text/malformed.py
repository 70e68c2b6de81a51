"""Malformed records: Spark's parse modes, and conversion of parsed records to batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError, DataError

BATCH_ROWS = 2_048
"""Number of rows of a batch of the exact path. Parsing them in Python takes some tens of milliseconds."""


class ParseMode(Enum):
    PERMISSIVE = "PERMISSIVE"
    DROP = "DROPMALFORMED"
    FAIL = "FAILFAST"


@dataclass(frozen=True)
class Record:
    """Parsed row.

    Attributes:
        values: values of the data columns, in order; null if a value could not be read.
        text: the text of the record; may be empty if it is well-formed.
        line: number of the line, starting at 1.
        problem: reason why the record is malformed; empty if it is well-formed.
    """

    values: list[object]
    text: str
    line: int
    problem: str = ""


@dataclass(frozen=True)
class RecordRules:
    """Rules for malformed records: the schema, the parse mode, and the index of the column for malformed texts."""

    schema: pa.Schema
    mode: ParseMode
    corrupt_index: int | None

    @property
    def data_fields(self) -> list[pa.Field]:
        """Columns that a parser fills: all except the column for malformed texts."""
        return [field for i, field in enumerate(self.schema) if i != self.corrupt_index]

    def batches(self, path: str, records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the rows that the mode keeps.

        Raises:
            DataError: a record is malformed, in FAILFAST mode. The message has file and line.
        """
        kept: list[Record] = []
        for record in records:
            if record.problem and self.mode is ParseMode.FAIL:
                raise DataError(f"{path}, line {record.line}: malformed record ({record.problem}): {record.text[:200]}")
            if record.problem and self.mode is ParseMode.DROP:
                continue
            kept.append(record)
            if len(kept) == BATCH_ROWS:
                yield self._batch(kept)
                kept = []
        if kept:
            yield self._batch(kept)

    def well_formed(self, columns: list[pa.Array]) -> pa.RecordBatch:
        """Return a batch of well-formed rows. ``columns``: the data columns; the list may be changed."""
        if self.corrupt_index is not None:
            columns.insert(self.corrupt_index, pa.nulls(len(columns[0]), pa.string()))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _batch(self, records: list[Record]) -> pa.RecordBatch:
        columns = [list(values) for values in zip(*(record.values for record in records), strict=True)]
        if self.corrupt_index is not None:
            columns.insert(self.corrupt_index, [record.text if record.problem else None for record in records])
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def parse_record_rules(schema: pa.Schema, options: OptionTexts) -> RecordRules:
    mode = options.text("mode", ParseMode.PERMISSIVE.value).strip().upper()
    if mode not in [known.value for known in ParseMode]:
        raise options.bad("mode", mode, "choose PERMISSIVE, DROPMALFORMED or FAILFAST")
    corrupt = options.text("columnNameOfCorruptRecord", "_corrupt_record")
    index = schema.get_field_index(corrupt) if corrupt in schema.names else None
    if index is not None and not pa.types.is_string(schema.field(index).type):
        raise ConfigError(f"column {corrupt} takes malformed records and must be a string")
    return RecordRules(schema, ParseMode(mode), index)
