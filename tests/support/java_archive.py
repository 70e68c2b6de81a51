"""Make an archive of the classes that Spark loads: ``python -m tests.support.java_archive FILE``.

A JVM that is started with it (``quick_java``) needs half of the CPU until its first query is done, for most of that
time goes into reading and verifying classes. It holds for one Java and one installation of Spark; any other JVM starts
without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support.quick_java import QUICK_JAVA

END_S = 300
"""The JVM writes the archive when it ends; half a minute on two cores."""


def make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=archive.parent) as folder:
        made = Path(folder) / "classes.jsa"
        os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} -Xlog:disable -XX:ArchiveClassesAtExit={made}"
        _load_classes(Path(folder) / "rows")
        os.replace(made, archive)  # whole or not at all: JVMs may be starting


def _load_classes(rows: Path) -> None:
    """A session that does a little of what tests do, in a JVM that has ended afterwards."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    session.range(100).write.parquet(str(rows))
    session.read.parquet(str(rows)).createOrReplaceTempView("rows")
    session.sql("SELECT id % 3 AS key, count(*) AS n FROM rows GROUP BY 1 ORDER BY 1").toArrow()
    session.sql("SELECT * FROM rows JOIN rows AS others USING (id)").collect()
    session.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(list).collect()
    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(END_S)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
