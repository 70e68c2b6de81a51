"""Lines of Spark's log about a killed slot and other failures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.crash_log import dropped_of

PROGRAM = """
import os, signal, sys, time
import penstock
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", "100").load()
writer = penstock.writeStream(rows).format("noop").option("checkpointLocation", sys.argv[1]).option("parallelism", 2)
query = writer.option("restart.delay", "10ms").start()
for _ in range(2):
    query.processAllAvailable()
    time.sleep(0.5)
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    while query.view().state.value != "restarting":
        time.sleep(0.01)
query.processAllAvailable()
query.stop()
context = spark._jvm.org.apache.logging.log4j.LogManager.getContext(False)
deadline = time.monotonic() + 20
while (left := context.getConfiguration().getRootLogger().getFilter()) is not None and time.monotonic() < deadline:
    time.sleep(0.1)
print("FILTER", left, file=sys.stderr)
print("MARK", file=sys.stderr, flush=True)

def crash(batches):
    os._exit(7)

def fail(batches):
    raise ValueError("of a user")

for function in (crash, fail):
    try:
        spark.range(0, 1, 1, 1).mapInArrow(function, "id long").collect()
    except Exception:
        pass
time.sleep(0.5)
spark.stop()
"""


@pytest.mark.spark
def test_a_killed_slot_is_one_line_and_other_failures_are_logged_as_before(tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "checkpoint")]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    slots, others = ended.stderr.split("MARK\n")
    assert not re.findall(r"^\tat |TaskSetManager|ERROR", slots, re.MULTILINE), slots
    assert slots.count("the Generation failed: ") == 2, slots
    assert "FILTER None" in slots, "nothing of a query that has ended is left"
    for failure in ("Python worker exited unexpectedly", "ValueError: of a user"):
        assert len(re.findall(rf"{failure}", others)) >= 2, "by the executor and by the driver"
    assert len(re.findall(r"ERROR Executor: Exception in task", others)) == 2
    assert len(re.findall(r"WARN TaskSetManager: Lost task", others)) == 2
    assert "INFO" not in others


@pytest.mark.parametrize(
    ("message", "dropped"),
    [
        ("Exception in task 1.0 in stage 3.0 (TID 7)", True),
        ("[queryId = fff89] Lost task 0.0 in stage 3.0 (TID 2) (localhost executor driver): "
         "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat x", True),
        ("[queryId = fff89] Lost task 0.0 in stage 3.0 (TID 2) (localhost executor driver): TaskKilled "
         "(Stage cancelled: Task ResultTask(1, 1) from barrier stage ResultStage 1 (f at x.py:9) failed.)", True),
        ("Lost task 0.0 in stage 3.0 (TID 2) (localhost executor driver): ExecutorLostFailure (executor 1)", False),
        ("Lost task 0.0 in stage 31.0 (TID 2) (localhost executor driver): TaskKilled (Stage cancelled)", False),
    ],
)  # fmt: skip
def test_lines_of_a_killed_slot_and_of_those_that_spark_kills_with_it_are_dropped(message: str, dropped: bool) -> None:
    assert bool(re.fullmatch(dropped_of(3), message)) is dropped
