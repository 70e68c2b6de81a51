"""Clients of the REST benchmark in a process of their own: an open page of the UI and Prometheus, or an open loop.

``python -m benchmarks.suites.rest_service_clients`` takes one JSON line of instructions after the other on stdin
and answers each with one line when it is done; in between it sleeps. ``Clients`` is the other end.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from benchmarks.lib.open_loop import OpenLoop, request

POLL_S = 1.5
"""``EVERY_MS`` of page-graph.js: from one answer to the next request."""
SCRAPE_S = 5.0


class Connection:
    """HTTP/1.1 with keep-alive, as much of it as GET needs; one request at a time."""

    def __init__(self, url: str) -> None:
        self._url, self._place = url, urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> int:
        """The status, once the whole body is here."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._place.hostname, self._place.port)
        reader, writer = self._streams
        writer.write(request(self._url, path))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
        await reader.readexactly(int(length.partition(":")[2]))
        return int(head.split(" ", 2)[1])

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()


class RequestLog:
    """Latencies by path and statuses of the requests."""

    def __init__(self) -> None:
        self.latency_ms: dict[str, list[float]] = defaultdict(list)
        self.statuses: Counter[int] = Counter()

    def add(self, name: str, waited_s: float, status: int) -> None:
        self.statuses[status] += 1
        self.latency_ms[name].append(waited_s * 1000)

    async def ask(self, connection: Connection, name: str, path: str) -> None:
        since_s = time.perf_counter()
        status = await connection.get(path)
        self.add(name, time.perf_counter() - since_s, status)


async def open_page(url: str, paths: dict[str, str], until_s: float, log: RequestLog) -> None:
    """Request what a page requests, all at once, and again ``POLL_S`` after the last answer.

    Pages and Prometheus begin at a random point of their periods, so that the average rate does not depend on the
    length.
    """
    connections = {name: Connection(url) for name in paths}
    await asyncio.sleep(random.uniform(0.0, POLL_S))
    while time.perf_counter() < until_s:
        await asyncio.gather(*(log.ask(connections[name], name, path) for name, path in paths.items()))
        await asyncio.sleep(min(POLL_S, max(0.0, until_s - time.perf_counter())))
    for connection in connections.values():
        await connection.close()


async def scrape(url: str, until_s: float, log: RequestLog) -> None:
    """Each time over a new connection: a service may close one that was idle for so long, just then."""
    due_s = time.perf_counter() + random.uniform(0.0, SCRAPE_S)
    while due_s < until_s:
        await asyncio.sleep(due_s - time.perf_counter())
        connection = Connection(url)
        await log.ask(connection, "metrics", "/metrics")
        await connection.close()
        due_s += SCRAPE_S


async def watch(url: str, paths: dict[str, str], seconds: float, log: RequestLog) -> None:
    until_s = time.perf_counter() + seconds
    await asyncio.gather(open_page(url, paths, until_s, log), scrape(url, until_s, log))


def carry_out(url: str, seconds: float, paths: dict[str, str], rate: float | None) -> RequestLog:
    log = RequestLog()
    if rate is not None:
        OpenLoop(url, paths, log.add).run(rate, seconds)
    else:
        asyncio.run(watch(url, paths, seconds, log))
    return log


class Clients:
    """Handle of the process, a context manager. One job at a time: begin it, then take its result."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def begin(self, url: str, seconds: float, paths: dict[str, str], rate: float | None = None) -> None:
        """Begin an open loop of ``rate`` requests a second; without a rate, an open page and Prometheus."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"url": url, "seconds": seconds, "paths": paths, "rate": rate}) + "\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """``latency_ms`` by path, and ``cpu_s`` of this process. Raises AssertionError unless every answer was 200."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the clients ended with {self._process.wait(30)}"
        found: dict[str, Any] = json.loads(line)
        assert list(found.pop("statuses")) == ["200"], f"not all requests were answered: {line[:200]}"
        return found


def main(lines: Sequence[str] | Any) -> None:
    for line in lines:
        before_s = time.process_time()
        log = carry_out(**json.loads(line))
        used_s = time.process_time() - before_s
        answer = {"latency_ms": log.latency_ms, "statuses": log.statuses, "cpu_s": used_s}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.stdin)
