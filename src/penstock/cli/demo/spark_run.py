"""``penstock demo --spark``: runs the DataFrame on Structured Streaming and compares it with Spark's batch result."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

from rich.console import Console

from penstock.cli.demo.data import load_flights, write_files
from penstock.cli.demo.job_file import load_job
from penstock.cli.demo.judge import judge
from penstock.cli.demo.quiet_session import quiet_session
from penstock.cli.demo.results import DemoResults
from penstock.cli.demo.screen import Screen


def run_on_spark(console: Console, out: Path, small: bool, job_path: Path | None) -> bool:
    """Run the job with ``df.writeStream`` over all files. Return True if the result equals Spark's batch result."""
    job = load_job(job_path)
    run = (out / f"{datetime.now():%Y%m%d-%H%M%S}-spark").resolve()
    screen = Screen(console)
    flights = write_files(load_flights(small), run / "input")
    results = DemoResults(rows=flights.rows, run=run, job=job.path, source=job.source)
    spark = quiet_session("penstock demo on Structured Streaming", run)
    screen.step(
        "The job on Structured Streaming", f"the same DataFrame, started with df.writeStream; {flights.rows:,} flights"
    )
    screen.code(job.source)
    began_s = time.monotonic()
    df = job.build(spark.readStream.schema(job.schema).parquet(str(run / "input")), "")
    writer = df.writeStream.format("parquet").option("path", str(results.output)).queryName("demo")
    query = writer.option("checkpointLocation", str(run / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    screen.say(f"{len(query.recentProgress)} micro-batches in {time.monotonic() - began_s:.1f} s")
    judge(spark, job, results, screen, flights.max_event_time_us)
    return results.verdict is not None and results.verdict.identical
