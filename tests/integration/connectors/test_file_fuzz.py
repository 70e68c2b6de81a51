"""A few random files of each format, read by Spark's reader and by the file source, and files that once differed.
`make fuzz-files N=...` reads many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.functions.json.values import Converters
from tests.fuzz.fuzz_files import FORMATS, fuzz

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

IN_CI = {name: range(1_000_000, 1_000_040) for name in FORMATS}
"""Fixed seeds: every run has the same files."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", FORMATS)
def test_random_files_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, name: str) -> None:
    findings = list(fuzz(spark, name, IN_CI[name], tmp_path))
    assert not findings, "\n".join(map(str, findings))


def test_a_difference_is_found(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Converters.rows

    def broken(self: Converters, data_type: Any) -> Any:
        convert = rows(self, data_type)
        return lambda reader: [dict.fromkeys(row) for row in convert(reader)]  # type: ignore[union-attr]

    monkeypatch.setattr(Converters, "rows", broken)
    findings = list(fuzz(spark, "json", IN_CI["json"], tmp_path))
    assert findings
    assert "make fuzz-files N=1 SEED=10000" in str(findings[0])
