"""The sources for tests: ``socket`` and ``rate-micro-batch``."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator

import cloudpickle
import pytest

from penstock.connectors.rate_micro_batch import RateMicroBatchOptions, RateMicroBatchSource
from penstock.connectors.socket_source import SPLIT_LINES, SocketSource
from penstock.errors import ConfigError, DataError
from penstock.testing.conformance import check_source
from tests.support.connectors.kits import new_reader, read_rows, stored


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


class Server:
    """Takes one connection and sends what it is told."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._connection: socket.socket | None = None

    def send(self, data: bytes) -> None:
        if self._connection is None:
            self._connection, _ = self._listening.accept()
        self._connection.sendall(data)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._listening.close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def source(server: Server) -> Iterator[SocketSource]:
    connected = SocketSource("127.0.0.1", server.port, include_timestamp=True)
    yield connected
    connected.close()


def rows_from(source: SocketSource, state: object) -> tuple[list[str], object]:
    """The rows that are there after ``state``."""
    discovery = source.discover(state, 2)
    reader = new_reader(source)
    for split in discovery.splits:
        reader.add_split(stored(split))
    return [row[0] for row in read_rows(reader, 3)], discovery.state


def test_lines_come_in_order_and_are_there_until_they_are_committed(server: Server, source: SocketSource) -> None:
    assert rows_from(source, None) == ([], 0)
    server.send(b"one\r\n\ntwo\nunfin")
    eventually(lambda: source.discover(0, 1).state == 3)
    assert rows_from(source, 0) == (["one", "", "two"], 3)
    server.send(b"ished\n")
    eventually(lambda: source.discover(0, 1).state == 4)
    assert rows_from(source, 1) == (["", "two", "unfinished"], 4), "a lost call is made again"
    source.committed(2)
    assert rows_from(source, 2) == (["two", "unfinished"], 4)
    with pytest.raises(DataError, match="were given up"):
        source.discover(1, 1)


def test_bytes_that_are_no_utf8_are_replaced_as_java_does(server: Server, source: SocketSource) -> None:
    source.discover(None, 1)
    server.send("ü\u2028\r".encode() + b"a\xff\xed\xa0\x80\x85b\nend\n")
    eventually(lambda: source.discover(0, 1).state == 3)
    assert rows_from(source, 0)[0] == ["ü\u2028", "a\ufffd\ufffd\ufffdb", "end"]


def test_many_lines_are_several_splits(server: Server, source: SocketSource) -> None:
    source.discover(None, 1)
    server.send(b"".join(b"%d\n" % i for i in range(2 * SPLIT_LINES + 5)))
    eventually(lambda: source.discover(0, 1).state == 2 * SPLIT_LINES + 5)
    assert len(source.discover(0, 1).splits) == 3
    assert rows_from(source, 0)[0] == [str(i) for i in range(2 * SPLIT_LINES + 5)]


def test_a_frozen_socket_ends_with_what_has_come(server: Server, source: SocketSource) -> None:
    source.discover(None, 1)
    server.send(b"a\nb\n")
    eventually(lambda: source.discover(0, 1).state == 2)
    source.freeze()
    server.send(b"c\n")
    discovery = source.discover(1, 1)
    assert (discovery.state, discovery.finished) == (2, True)
    assert source.discover(2, 1).finished


def test_a_new_driver_cannot_go_on(server: Server, source: SocketSource) -> None:
    with pytest.raises(DataError, match=r"7 lines were read by a driver that is gone.*empty checkpointLocation"):
        source.discover(7, 1)


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(DataError, match=f"cannot connect to 127.0.0.1:{port}"):
        SocketSource("127.0.0.1", port).discover(None, 1)


def test_the_connection_stays_with_the_driver(server: Server, source: SocketSource) -> None:
    source.discover(None, 1)
    assert cloudpickle.loads(cloudpickle.dumps(source)).schema == source.schema


def batches(source: RateMicroBatchSource, count: int, parallelism: int) -> list[list[tuple[int, int]]]:
    state, result = None, []
    for _ in range(count):
        discovery = source.discover(state, parallelism)
        state = json.loads(json.dumps(discovery.state))
        reader = new_reader(source)
        for split in discovery.splits:
            reader.add_split(stored(split))
        result.append(sorted(read_rows(reader, 2)))
    return result


@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_every_batch_has_its_rows_and_its_time(partitions: int | None) -> None:
    source = RateMicroBatchSource(RateMicroBatchOptions(5, partitions, 1_000, 50))
    expected = [[((1_000 + 50 * n) * 1000, 5 * n + i) for i in range(5)] for n in range(3)]
    assert batches(source, 3, 2) == expected


def test_micro_batches_replay() -> None:
    source = RateMicroBatchSource(RateMicroBatchOptions(7, 2))
    source.freeze()
    check_source(source, 20)


def test_a_frozen_micro_batch_source_has_one_more_batch() -> None:
    source = RateMicroBatchSource(RateMicroBatchOptions(5))
    state = source.discover(None, 1).state
    source.freeze()
    last = source.discover(state, 1)
    assert ([split.spec["batch"] for split in last.splits], last.finished) == ([1], True)
    assert source.discover(state, 1) == last, "a lost call is made again"
    assert source.discover(last.state, 1).splits == ()


def test_options_of_micro_batches_are_checked() -> None:
    for options in (
        {"rows_per_batch": 0},
        {"rows_per_batch": 1, "num_partitions": 0},
        {"rows_per_batch": 1, "advance_ms": -1},
    ):
        with pytest.raises(ConfigError, match="must be at least"):
            RateMicroBatchOptions(**options)
