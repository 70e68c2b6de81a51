"""PySpark's own streaming examples, as they are shipped, with only the call that starts them changed."""

from __future__ import annotations

import re
import socketserver
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import NotSupported
from tests.support.mock_kafka import mock_kafka
from tests.support.queries.query_running import eventually

pytestmark = pytest.mark.spark

EXAMPLES = Path(pyspark.__file__).parent / "examples" / "src" / "main" / "python" / "sql" / "streaming"
LINES = ("apache spark", "apache penstock apache", "", "spark")
WORDS = {"apache": 3, "spark": 2, "penstock": 1, "": 1}
START = (r"(\w+)\s*\\?\s*\.writeStream\b", r"penstock.writeStream(\1)")
"""The call that starts a query, and the one that starts it here."""
READ = (r"\bspark\s*\\?\s*\.readStream\b", "penstock.readStream(spark)")
COMPLETE = (r"outputMode\('update'\)", "outputMode('complete')")
Replacement = tuple[str, str]


@pytest.fixture(autouse=True)
def settings(spark_conf: Callable[[str, str], None]) -> None:
    spark_conf("spark.penstock.checkpoint.interval", "200ms")
    spark_conf("spark.penstock.parallelism", "2")


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    """Server of the examples: it sends the lines to every client, and nothing else."""

    class Sender(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall("".join(f"{line}\n" for line in LINES).encode())
            self.request.recv(1)  # until the other side has had enough

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Sender) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield running.server_address
        running.shutdown()
        thread.join()


def source_of(name: str, *replacements: Replacement) -> str:
    text = (EXAMPLES / f"{name}.py").read_text()
    for pattern, replacement in replacements:
        text, found = re.subn(pattern, replacement, text)
        assert found == 1, pattern
    return text


def execute(monkeypatch: pytest.MonkeyPatch, name: str, text: str, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
    exec(compile(text, f"{name}.py", "exec"), {"__name__": "__main__", "penstock": penstock})


@contextmanager
def running(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, *arguments: object
) -> Iterator[penstock.StreamingQuery]:
    """The example in a thread of its own, for it waits for its query's end; that is stopped at the end."""
    failed: list[BaseException] = []

    def example() -> None:
        try:
            execute(monkeypatch, name, text, *arguments)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    thread = threading.Thread(target=example, daemon=True)
    thread.start()
    eventually(lambda: bool(penstock.streams.active or failed), "the example to start its query")
    assert not failed, failed
    [query] = penstock.streams.active
    try:
        yield query
    finally:
        query.stop()
        thread.join(30)
    assert not thread.is_alive()
    assert not failed, failed


class Console:
    """Console output of an example."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    def rows(self, newest: bool) -> list[list[str]]:
        """Return the rows of the last whole table, or of all."""
        self._text += self._capsys.readouterr().out
        tables = re.findall(r"(?m)^\+[-+]+\+\n((?:\|.*\n)+)\+[-+]+\+\n((?:\|.*\n)*)\+[-+]+\+$", self._text)
        rows = [row for _, body in tables[-1 if newest else 0 :] for row in body.splitlines()]
        return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]

    def counts(self, word: int, count: int, newest: bool = True) -> dict[str, int]:
        """Return counts by word, summed over the windows."""
        total: Counter[str] = Counter()
        for row in self.rows(newest):
            total[row[word]] += int(row[count])
        return dict(total)


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys)


@pytest.mark.parametrize(
    ("name", "more", "arguments", "columns"),
    [
        ("structured_network_wordcount", (), (), (0, 1)),
        ("structured_network_wordcount_windowed", (), (3600, 1800), (1, 2)),
        ("structured_sessionization", (COMPLETE,), (), (0, 4)),
        ("structured_network_wordcount_session_window", (), (), (0, 1)),
    ],
)
def test_examples_over_a_socket_count_its_words(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    server: tuple[str, int],
    console: Console,
    name: str,
    more: tuple[Replacement, ...],
    arguments: tuple[int, ...],
    columns: tuple[int, int],
) -> None:
    """The windowed one has every line in two windows; the last one prints each word once, after ten seconds of silence:
    not all of them need come in the same table."""
    times, newest = 2 if "windowed" in name else 1, "session_window" not in name
    expected = {word: count * times for word, count in WORDS.items()}
    with running(monkeypatch, name, source_of(name, START, *more), *server, *arguments):
        eventually(lambda: console.counts(*columns, newest) == expected, "the counts of all lines", timeout_s=60)


def test_the_example_over_kafka_counts_the_words_of_a_topic(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    """The example's first lines name the Spark connector that reads the topic."""
    name = "structured_kafka_wordcount"
    with mock_kafka() as kafka:
        kafka.create("words", 2)
        text = source_of(name, START, READ)
        with running(monkeypatch, name, text, kafka.servers, "subscribe", "words") as query:
            query.processAllAvailable()  # it begins with what comes from now on
            for number, line in enumerate(LINES):
                kafka.send("words", [(None, line.encode())], number % 2)
            eventually(lambda: console.counts(0, 1) == WORDS, "the counts of all rows")


def test_one_of_them_is_refused_in_its_own_mode(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, server: tuple[str, int]
) -> None:
    """Spark's own engine refuses it too: session windows have no update mode there."""
    name = "structured_sessionization"
    with pytest.raises(NotSupported, match=r"Spark itself refuses .*session window"):
        execute(monkeypatch, name, source_of(name, START), *server)
