"""Ctrl-C in a real terminal's way: SIGINT to the whole process group of a driver program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
    import os, signal, sys, threading, time
    import penstock

    spark = penstock.session("ctrl-c", {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"})
    df = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    query = penstock.writeStream(df).format("noop").queryName("patient").option("parallelism", 1)
    query = query.trigger(processingTime="200 milliseconds").start()
    while query.lastProgress is None:
        time.sleep(0.05)
    generation = query.generation

    def interrupted(wait):
        threading.Timer(0.5, os.killpg, (0, signal.SIGINT)).start()
        try:
            wait()
        except KeyboardInterrupt:
            return True
        return False

    endless = lambda: query.processAllAvailable()  # this source always has more
    print("AWAIT", interrupted(query.awaitTermination))
    print("ANY", interrupted(penstock.streams.awaitAnyTermination))
    print("PROCESS", interrupted(endless))
    print("SNAPSHOT", query.snapshot(timeout=10).id != "")
    before = query.view().committed_epoch
    deadline = time.monotonic() + 20
    while query.view().committed_epoch < before + 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    print("RUNS", query.isActive, query.view().committed_epoch >= before + 2)
    print("SAME", query.generation == generation, len(spark.sparkContext.statusTracker().getActiveJobsIds()))
    print("SPARK", spark.range(3).count())
    handler = signal.getsignal(signal.SIGINT)
    print("HANDLER", handler.__module__)
    query.stop()
    spark.stop()
"""


def test_ctrl_c_ends_the_wait_and_not_the_query(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as driver:
        try:
            told, errors = driver.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            os.killpg(driver.pid, signal.SIGKILL)
            told, errors = driver.communicate()
            pytest.fail(f"it hangs after {told}\n{errors}")
    assert driver.returncode == 0, errors
    assert told.splitlines() == [
        "AWAIT True",
        "ANY True",
        "PROCESS True",
        "SNAPSHOT True",
        "RUNS True True",
        "SAME True 1",  # PySpark's own handler would have cancelled the slots' job
        "SPARK 3",
        "HANDLER pyspark.core.context",
    ]
