"""A checkpoint of Spark's own engine that ``penstock snapshot import`` takes over, and what the import restores."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.snapshots.portable.export import export_snapshot

SPARK_IS_UP = "spark is up"
"""The line that the command says when it begins with what is its own."""
FILES, USERS = 6, 4000
JOB = f"""
from pathlib import Path

from pyspark.sql import functions as F

HERE = Path(__file__).parent


def build(spark):
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    spark.conf.set("spark.penstock.maxParallelism", "32")
    rows = spark.readStream.schema("user string, amount bigint").option("maxFilesPerTrigger", 2)
    print({SPARK_IS_UP!r}, flush=True)
    return rows.parquet(str(HERE / "input")).groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("sum"))


def run():
    from penstock.api.sessions import session

    writer = build(session(conf={{"spark.ui.enabled": "false"}})).writeStream.format("noop")
    writer = writer.outputMode("update").trigger(availableNow=True)
    writer.option("checkpointLocation", str(HERE / "location")).start().awaitTermination()


if __name__ == "__main__":
    run()
"""
Contents = dict[int, list[tuple[object, ...]]]


def write_job(directory: Path) -> Path:
    """The input and the program whose ``run`` leaves Spark's checkpoint at ``location`` beside it."""
    (directory / "input").mkdir(parents=True)
    for number in range(FILES):
        users = [f"user-{(key * 7 + number) % USERS}" for key in range(USERS // 2)]
        rows = pa.table({"user": users, "amount": pa.array(range(len(users)), pa.int64())})
        pq.write_table(rows, directory / "input" / f"part-{number}.parquet")
    job = directory / "job.py"
    job.write_text(JOB)
    return job


def words(job: Path, checkpoint: Path) -> list[str]:
    """Return the arguments of ``penstock snapshot import``, without the target."""
    options = ["--query", f"{job}:build", "--output-mode", "update", "--parallelism", "3"]
    return [*options, str(checkpoint)]


def restored(location: str) -> Contents:
    """All rows of state of the snapshot there, and what is said of the source."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = export_snapshot(location, "chk-1", Path(folder, "portable"))
        files = [part.file.path for table in manifest.tables for part in table.parts]
        tables = [pq.read_table(Path(folder, "portable", path)) for path in files]
    rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    (source,) = manifest.metadata.sources
    return {manifest.metadata.checkpoint: [*sorted(rows, key=repr), (repr(source.state), repr(source.pending))]}
