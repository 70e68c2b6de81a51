"""Fingerprints of file formats are stored in the names of bundles and held-back files of earlier releases."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connectors.files.csv.sink import CsvFormat, CsvStyle
from penstock.connectors.files.format import FileFormat
from penstock.connectors.files.json.sink import JsonFormat
from penstock.connectors.files.parquet.sink import ParquetFormat
from penstock.connectors.files.text.sink import TextFormat

SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string())])


@pytest.mark.parametrize(
    ("file_format", "fingerprint"),
    [
        (CsvFormat(SCHEMA, "gzip", "UTC", True, CsvStyle(delimiter=";")), "46cd6c4d"),
        (JsonFormat(SCHEMA, "none", "UTC", False), "8d848b34"),
        (ParquetFormat(SCHEMA, "zstd"), "b613c1d6"),
        (TextFormat(SCHEMA, "none"), "f958d20c"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_names_of_classes_and_fields_are_part_of_a_fingerprint(file_format: FileFormat, fingerprint: str) -> None:
    assert file_format.fingerprint == fingerprint
