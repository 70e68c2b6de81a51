"""The demo's Spark session: UTC, and its log in a file."""

from __future__ import annotations

import logging
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.api.sessions import session

# The gateway's logger has the root's level: otherwise Spark says on the screen that it changed it.
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = warn
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n
"""


def quiet_session(app_name: str, run: Path) -> SparkSession:
    """A session that logs to ``spark.log``, Penstock to ``penstock.log``: a lost worker is part of the demo."""
    run.mkdir(parents=True, exist_ok=True)
    own = logging.getLogger("penstock")
    own.addHandler(logging.FileHandler(run / "penstock.log", delay=True))
    own.propagate = False
    settings = run / "log4j2.properties"
    settings.write_text(_LOG4J.format(log_file=run / "spark.log"))
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={settings.as_uri()}",
        "spark.sql.shuffle.partitions": "2",
    }
    return session(app_name, conf)
