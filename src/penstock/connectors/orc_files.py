"""ORC files as batches of a given schema, as Spark reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import orc

from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.parquet_files import BATCH_ROWS


def orc_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> OrcFormat:
    options.without_effect("mergeSchema")
    return OrcFormat(schema)


@dataclass(frozen=True)
class OrcFormat:
    """Reads the columns of ``schema`` by name; a missing column is null."""

    schema: pa.Schema

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        file = orc.ORCFile(path)
        for index in range(file.nstripes):
            batch = file.read_stripe(index)
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)
