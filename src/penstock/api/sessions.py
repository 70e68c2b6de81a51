"""The embedded Spark session, and the checks that Penstock can run in a session."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.errors import ResourceError

MIN_JAVA = 17
"""Oldest version that Spark 4 supports."""


def session(app_name: str = "penstock", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session, or a new embedded one with ``local[2 * cores + 2]``.

    The number in a local master counts threads, not cores. A running query holds its slots, and other Spark jobs of
    the session need slots of their own.

    Args:
        app_name: name shown in Spark's UI.
        conf: Spark settings for a new session, for example ``{"spark.ui.enabled": "false"}``.

    Raises:
        ResourceError: a new session is needed, and there is no Java 17 or newer. The message says what to install.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(f"local[{2 * (os.cpu_count() or 1) + 2}]")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.python.daemon.module", "penstock.spark.daemon")
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_java() -> int:
    """Return the major version of the Java that Spark will start.

    Raises:
        ResourceError: Java is missing or older than 17.
    """
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else shutil.which("java")
    found = "none"
    if java and shutil.which(java):
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        match = re.search(r'version "(\d+)', text)
        if match and int(match[1]) >= MIN_JAVA:
            return int(match[1])
        found = match[1] if match else "unknown"
    raise ResourceError(
        f"Java {MIN_JAVA} or newer is needed (found: {found}); install a JRE, for example: "
        f"apt-get install openjdk-{MIN_JAVA}-jre-headless"
    )


def set_workers_python(spark: SparkSession) -> None:
    """Make local workers run this Python interpreter. Another one would lack Penstock and the user's packages.

    Do nothing if ``PYSPARK_PYTHON`` is set, or if the master is not local: on a cluster the path may differ.
    """
    context = spark.sparkContext
    if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
