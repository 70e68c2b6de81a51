"""``convert`` by Spark tasks gives what ``convert`` gives."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import CorruptSnapshot
from penstock.interop.spark_data.conversion import convert_with_spark
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.format.envelope import digest, seal_envelope
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.portable.jobs import ROW_GROUP_ROWS
from penstock.snapshots.portable.layout import MANIFEST
from tests.support.snapshots.portable_kit import LABEL, Scene, at, restored

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("task_bytes", [1, None])
def test_every_task_brings_its_key_groups(
    spark: SparkSession, tmp_path: Path, task_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    monkeypatch.setattr("penstock.snapshots.portable.jobs.ROW_GROUP_ROWS", 40)
    export_snapshot(str(scene.location), LABEL, tmp_path / "portable")
    part = next((tmp_path / "portable").rglob("part-00000.parquet"))
    assert pq.ParquetFile(part).metadata.num_row_groups > 5
    assert ROW_GROUP_ROWS > 40
    if task_bytes is None:
        arguments = ["snapshot", "convert", str(tmp_path / "portable"), str(tmp_path / "back"), "--spark", "local[2]"]
        result = CliRunner().invoke(app, [*arguments, "--json"])
        assert json.loads(result.stdout)["snapshot"] == "chk-4"
    else:
        told: list[tuple[int, int]] = []
        convert_with_spark(
            spark, tmp_path / "portable", tmp_path / "back", task_bytes, lambda done, total: told.append((done, total))
        )
        assert told == sorted(told)
        assert told[-1][0] == told[-1][1]
    verification = verify_location(str(tmp_path / "back"))
    assert verification.damage == []
    assert verification.orphans == verification.unsettled == []
    files = list((tmp_path / "back" / "data").glob("*-state.arrows"))
    assert (len(files) > 10) if task_bytes == 1 else (len(files) == 2)
    for parallelism in (2, 3):
        job = at(scene.graph, parallelism)
        assert restored(tmp_path / "back", job) == restored(scene.location, job)


@pytest.mark.parametrize(("order", "problem"), [("swapped", "not sorted by key group"), ("cut", "rows instead of")])
def test_a_part_that_is_not_what_it_says_is_refused(
    spark: SparkSession, tmp_path: Path, order: str, problem: str
) -> None:
    """Tasks go by what footers say, and a part of somebody else's may say anything."""
    scene = Scene(tmp_path)
    directory = tmp_path / "portable"
    part = export_snapshot(str(scene.location), LABEL, directory).tables[0].parts[0]
    rows = pq.read_table(directory / part.file.path)
    half, count = rows.num_rows // 2, rows.num_rows
    changed = rows.take([*range(half, count), *(range(half) if order == "swapped" else range(0))])
    options = {"compression": "none", "use_dictionary": False, "row_group_size": 50}
    pq.write_table(changed, directory / part.file.path, **options)
    data = (directory / part.file.path).read_bytes()
    body = json.loads((directory / MANIFEST).read_bytes())["body"]
    body["tables"][0]["parts"][0]["file"].update(length=len(data), checksum=digest(data))
    (directory / MANIFEST).write_bytes(seal_envelope(body))
    with pytest.raises(CorruptSnapshot, match=problem):
        convert_with_spark(spark, directory, tmp_path / "back", task_bytes=1)
    assert not (tmp_path / "back").exists()
