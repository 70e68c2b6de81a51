"""The benchmark of the REST service: its arithmetic, and that its clients send the requested number of requests."""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lib.open_loop import CONNECTIONS, OpenLoop
from benchmarks.suites.rest_service import bootstrap, checkpoint_summary
from benchmarks.suites.rest_service_clients import Connection, RequestLog

ANSWER_S = 0.005
Values = st.lists(st.floats(0.5, 1.5), min_size=1, max_size=30)


@given(Values)
def test_bounds_lie_on_both_sides_of_the_figure_and_within_the_values(values: list[float]) -> None:
    found = bootstrap(statistics.fmean, values, resamples=200)
    assert found["n"] == len(values)
    assert min(values) - 1e-9 <= found["lower"] <= found["upper"] <= max(values) + 1e-9
    assert found == bootstrap(statistics.fmean, values, resamples=200)


def test_the_bound_of_a_mean_is_the_one_that_statistics_has_for_many_values() -> None:
    values = [statistics.NormalDist(1.0, 0.02).inv_cdf((n + 0.5) / 100) for n in range(100)]
    found = bootstrap(statistics.fmean, values, resamples=4_000)
    assert found["value"] == pytest.approx(1.0)
    assert found["lower"] == pytest.approx(1 - 1.645 * 0.002, abs=0.0004)
    assert found["upper"] == pytest.approx(1 + 1.645 * 0.002, abs=0.0004)


def test_ratios_of_checkpoints_are_those_of_all_windows_together() -> None:
    def window(*durations: float) -> dict[str, object]:
        cores = {"driver": 0.5, "elsewhere": 0.25, "clients": 0.125}
        return {"duration_ms": list(durations), "cores": cores, "latency_ms": {"graph": [1.0, 3.0]}}

    rounds = [
        {"with": window(10, 30), "elsewhere": window(10, 10, 10), "without": window(10)},
        {"with": window(20), "elsewhere": window(20), "without": window(10, 40)},
    ]
    found = checkpoint_summary(rounds)
    assert found["with"]["duration_ms"]["n"] == 3
    ratios = {
        form: {name: one["value"] for name, one in found[form]["ratio"].items()} for form in ("with", "elsewhere")
    }
    assert ratios == {"with": {"median": 2.0, "p99": 0.75}, "elsewhere": {"median": 1.0, "p99": 0.5}}
    assert found["with"]["ratio_to_elsewhere"]["median"]["value"] == 2.0
    assert found["with"]["all_latency_ms"]["n"] == 4
    assert "ratio" not in found["without"]


def run(clients: Coroutine[object, object, RequestLog]) -> RequestLog:
    """Run on another thread: on this one the browser of other tests may keep a loop running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, clients).result()


async def answering(asked: Counter[str], status: str, work: object) -> RequestLog:
    """Return what the clients saw of a server that gives every request this status."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            asked[head.decode().split()[1]] += 1
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(ANSWER_S)
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n".encode())
            await writer.drain()
            await asyncio.sleep(0)  # an answer may come in two pieces
            writer.write(b"{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    book = RequestLog()
    async with server:
        await work(f"http://{host}:{port}", book)  # type: ignore[operator]
    return book


def test_the_open_loop_asks_for_each_path_in_its_turn() -> None:
    asked: Counter[str] = Counter()

    async def work(url: str, book: RequestLog) -> None:
        loop = OpenLoop(url, {"one": "/1", "two": "/2", "three": "/3"}, book.add)
        await asyncio.to_thread(loop.run, 200.0, 0.15)

    book = run(answering(asked, "200 OK", work))
    assert asked == {"/1": 10, "/2": 10, "/3": 10}
    assert {name: len(values) for name, values in book.latency_ms.items()} == {"one": 10, "two": 10, "three": 10}
    assert book.statuses == {200: 30}


def test_what_a_request_waits_for_a_connection_counts() -> None:
    requests = 3 * CONNECTIONS

    async def work(url: str, book: RequestLog) -> None:
        # All are due at once, and a connection has one request at a time: the last ones wait for two answers before.
        await asyncio.to_thread(OpenLoop(url, {"one": "/1"}, book.add).run, requests * 1000.0, 0.001)

    book = run(answering(Counter(), "200 OK", work))
    waited = sorted(book.latency_ms["one"])
    assert len(waited) == requests
    assert waited[-CONNECTIONS] >= 3 * ANSWER_S * 1000


def test_an_open_loop_whose_connection_is_cut_says_so() -> None:
    async def work(url: str, book: RequestLog) -> None:
        with pytest.raises(AssertionError, match="closed the connection instead of answering one"):
            await asyncio.to_thread(OpenLoop(url, {"one": "/1"}, book.add).run, 100.0, 0.01)

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async def against_cutting() -> RequestLog:
        server = await asyncio.start_server(cut, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            await work(f"http://{host}:{port}", book := RequestLog())
        return book

    assert run(against_cutting()).statuses == {}


def test_other_answers_are_seen_as_such() -> None:
    async def work(url: str, book: RequestLog) -> None:
        connection = Connection(url)
        await book.ask(connection, "one", "/1")
        await connection.close()

    book = run(answering(Counter(), "503 Service Unavailable", work))
    assert book.statuses == {503: 1}
