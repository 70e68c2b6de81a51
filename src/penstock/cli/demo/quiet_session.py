"""Spark session of the demo. Its time zone is UTC, and its log goes to a file."""

from __future__ import annotations

import logging
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.api.sessions import session

# The gateway's logger has the level of the root. Otherwise Spark prints to the screen that it changed the level.
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
    """Create the session. Spark logs to ``spark.log`` and Penstock to ``penstock.log``, because a worker is killed."""
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
