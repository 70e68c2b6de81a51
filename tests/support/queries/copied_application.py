"""A driver in a process and a Spark of its own: runs one query at a time, as the lines on its standard input say.

Every step that it makes at an output or at the log of its location is counted. It stops itself (SIGSTOP) in front of
the step that it was told, and goes on when it is continued.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

import penstock
from penstock.errors import PenstockError

TOLD = "@@"
SCHEMA = "key bigint, value bigint, at timestamp"
STEPS = ("os.rename", "os.link", "os.mkdir", "os.remove", "sqlite3.connect")
"""Audit events of what changes an output or a location."""


class Steps:
    """Stops this process in front of one step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.made = 0
        self.stop_at: int | None = None

    def begin(self, stop_at: int | None) -> None:
        with self._lock:
            self.made, self.stop_at = 0, stop_at

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in STEPS:
            with self._lock:
                self.made += 1
                stops = self.made == self.stop_at
            if stops:
                with TRANSACTION:
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # os.kill lets this thread go on


@dataclass
class Keys(WriterCommitMessage):
    values: list[int]


class Database(DataSource):
    """Keeps rows and fence in one database, each commit in one transaction."""

    @classmethod
    def name(cls) -> str:
        return "database"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return DatabaseWriter(self.options["path"])


class Transactions:
    """A lock of this process. The writer is pickled for the slots, which use none."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Transactions], tuple[()]]:
        return Transactions, ()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


TRANSACTION = Transactions()
"""No thread is within a transaction while another one stops the process. A step may be within one."""


class DatabaseWriter(DataSourceStreamWriter):
    fence: bytes | None = None

    def __init__(self, path: str) -> None:
        self.path = f"{path}/rows.sqlite"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Keys([row.key for row in iterator])

    def connect(self) -> sqlite3.Connection:
        Path(self.path).parent.mkdir(exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
        connection.execute("CREATE TABLE IF NOT EXISTS fence (query TEXT PRIMARY KEY, value BLOB)")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (query TEXT, batch INTEGER, key INTEGER)")
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def stored(self, connection: sqlite3.Connection, query_id: str) -> bytes | None:
        found = connection.execute("SELECT value FROM fence WHERE query = ?", (query_id,)).fetchone()
        return None if found is None else found[0]

    def readFence(self, queryId: str) -> bytes | None:  # noqa: N802, N803
        with TRANSACTION, closing(self.connect()) as connection:
            return self.stored(connection, queryId)

    def replaceFence(self, queryId: str, expected: bytes | None, value: bytes) -> bool:  # noqa: N802, N803
        with TRANSACTION, closing(self.connect()) as connection:
            if self.stored(connection, queryId) != expected:
                return False
            connection.execute("INSERT OR REPLACE INTO fence VALUES (?, ?)", (queryId, value))
            connection.execute("COMMIT")
            return True

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        query = SparkSession.active().sparkContext.getLocalProperty("sql.streaming.queryId")
        with TRANSACTION, closing(self.connect()) as connection:
            if self.stored(connection, query) != self.fence:
                raise ValueError("another driver has the fence")
            if connection.execute("SELECT 1 FROM rows WHERE (query, batch) = (?, ?)", (query, batchId)).fetchone():
                return
            keys = [key for message in messages for key in message.values]
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", [(query, batchId, key) for key in keys])
            connection.execute("COMMIT")


def started(spark: SparkSession, order: dict[str, Any]) -> Any:
    out, location = order["out"], order["location"]
    rows = spark.readStream.schema(SCHEMA).parquet(order["inbox"])
    options = {"checkpoint.interval": "150ms", "restart.attempts": 50, "restart.delay": "20ms", "parallelism": 1}
    options |= order.get("options", {})
    if order["claim"]:
        options |= {"startFrom": location, "startMode": "claim"}
    else:
        options["checkpointLocation"] = location
    writer = penstock.writeStream(rows).options(**options)
    match order["sink"]:
        case "files":
            return writer.format("parquet").option("path", out).start()
        case "database":
            return writer.format("database").option("path", out).start()
        case "table":
            spark.sql("DROP TABLE IF EXISTS copied")  # its files stay
            spark.sql(f"CREATE TABLE copied ({SCHEMA}) USING parquet LOCATION '{out}'")
            return writer.toTable("copied")
    raise AssertionError(order["sink"])


def main() -> None:
    steps = Steps()
    conf = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.driver.memory": "512m"}
    spark = penstock.session("copied", conf | {"spark.sql.warehouse.dir": sys.argv[1]})
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Database)
    query: Any = None
    number = 0

    def tell(**told: Any) -> None:
        failed = query.exception() if query is not None else None
        text = "" if failed is None else f"{type(failed.__cause__).__name__}: {failed}"
        print(TOLD + json.dumps({"number": number, "failed": text, "steps": steps.made} | told), flush=True)

    tell()
    sys.addaudithook(steps.audit)
    for line in sys.stdin:
        order = json.loads(line)
        number = order["number"]
        match order["do"]:
            case "start":
                query = None
                steps.begin(order["stop_at"])
                try:
                    query = started(spark, order)
                    tell()
                except PenstockError as error:
                    tell(failed=f"{type(error).__name__}: {error}")
            case "settle":
                try:
                    query.processAllAvailable()
                    tell()
                except Exception as error:  # noqa: BLE001 - told
                    tell(raised=str(error))
            case "stop":
                steps.begin(None)
                if query is not None:
                    query.stop()
                tell()
    spark.stop()


if __name__ == "__main__":
    main()
