"""Socket source: lines of text from a TCP server. For tests and demonstrations only.

As in Spark, the driver connects to the server. It keeps the lines until a complete snapshot covers them, so slots may
fail and recover. A socket cannot be read again, so a new driver refuses to continue after lines that an older driver
has read.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from typing import Any, cast

import pyarrow as pa

from penstock.config import shown
from penstock.connectors.base import Source, SourceReader
from penstock.connectors.split_forms import SOCKET
from penstock.connectors.split_rows import SplitRowsReader
from penstock.errors import ConfigError, DataError
from penstock.functions.text.java_utf8 import decode_as_java
from penstock.logs import get_logger
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split

log = get_logger(__name__)

SPLIT_LINES = 1_000
"""Maximum number of lines of one split. The split contains the lines, also in snapshots."""
_CONNECT_TIMEOUT_S = 10.0
_STAMPED = pa.schema([("value", pa.string()), ("timestamp", pa.timestamp("us", tz="UTC"))])

Line = tuple[str, int]
"""Text and time of arrival in microseconds since 1970."""


class SocketSource(Source):
    """Source of ``spark.readStream.format("socket")``. The discovery state is the number of discovered lines.

    Args:
        host: address of the server, as the driver reaches it.
        port: port of the server.
        include_timestamp: add a second column with the time of arrival of the line.

    Raises:
        ConfigError: the host name or the port number is not valid.
    """

    def __init__(self, host: str, port: int, include_timestamp: bool = False) -> None:
        if not 1 <= port <= 65535:
            raise ConfigError(f"option port={port} of the socket source: choose from 1 to 65535")
        if not _is_host(host):
            raise ConfigError(f"option host={shown(host)} of the socket source is not a name of a host")
        self.schema = _STAMPED if include_timestamp else pa.schema([_STAMPED.field(0)])
        self._host = host
        self._port = port
        self._lines: _ReceivedLines | None = None
        self._frozen_at: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the connection, which stays on the driver."""
        return self.__dict__ | {"_lines": None}

    def describe(self) -> str:
        return f"TextSocketV2[host: {self._host}, port: {self._port}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        start = cast("int", state or 0)
        lines = self._connected(start)
        end = lines.end if self._frozen_at is None else min(lines.end, self._frozen_at)
        splits = []
        for first in range(start, end, SPLIT_LINES):
            part = lines.lines_between(first, min(first + SPLIT_LINES, end))
            spec = cast("dict[str, Plain]", {"texts": [text for text, _ in part], "micros": [at for _, at in part]})
            splits.append(Split(str(first), spec))
        return Discovery(splits, max(start, end), finished=self._frozen_at is not None and end >= self._frozen_at)

    def freeze(self) -> None:
        self._frozen_at = 0 if self._lines is None else self._lines.end

    def committed(self, state: Plain) -> None:
        if self._lines is not None:
            self._lines.drop_before(cast("int", state or 0))

    def create_reader(self) -> SourceReader:
        return SocketReader(self.schema)

    def close(self) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()

    def _connected(self, start: int) -> _ReceivedLines:
        if self._lines is None:
            if start:
                raise DataError(
                    f"socket source {self._host}:{self._port}: {start} lines were read by a driver that is gone, and a "
                    "socket cannot send them again; start anew with an empty checkpointLocation"
                )
            self._lines = _ReceivedLines(self._host, self._port)
        if start < self._lines.first:
            raise DataError(f"socket source {self._host}:{self._port}: lines from {start} on were given up already")
        return self._lines


def _is_host(text: str) -> bool:
    """Return True if the name can be passed to the system's resolver."""
    try:
        name = text.encode("idna")
    except UnicodeError:
        return False
    return bool(name) and not any(byte <= ord(" ") for byte in name)


class _ReceivedLines:
    """Lines that were received and not dropped, numbered from 0. A separate thread receives them.

    Attributes:
        first: number of the first line that was not dropped.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise DataError(f"socket source: cannot connect to {host}:{port}: {error}") from error
        self._socket.settimeout(None)
        self._name = f"{host}:{port}"
        self._lock = threading.Lock()
        self._kept: deque[Line] = deque()
        self.first = 0
        self._closed = False
        threading.Thread(target=self._receive, name="penstock-socket", daemon=True).start()

    def _receive(self) -> None:
        """Receive lines until the server closes the connection. As in Spark, the query then stays without new rows."""
        try:
            with self._socket.makefile("r", encoding="latin-1", newline=None) as file:
                for line in file:
                    text = decode_as_java(line.removesuffix("\n").encode("latin-1"))
                    with self._lock:
                        self._kept.append((text, time.time_ns() // 1_000_000 * 1_000))
        except OSError as error:
            if not self._closed:
                log.warning("socket source %s: the connection is lost: %s", self._name, error)
        else:
            if not self._closed:
                log.warning("socket source %s: the server has closed the connection; no rows will come", self._name)

    @property
    def end(self) -> int:
        with self._lock:
            return self.first + len(self._kept)

    def lines_between(self, start: int, end: int) -> list[Line]:
        with self._lock:
            return [self._kept[number - self.first] for number in range(start, end)]

    def drop_before(self, end: int) -> None:
        """Drop the lines with numbers below ``end``. A complete snapshot must cover them."""
        with self._lock:
            while self.first < end:
                self._kept.popleft()
                self.first += 1

    def close(self) -> None:
        self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("socket source %s was closed already", self._name)
        self._socket.close()


class SocketReader(SplitRowsReader):
    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(SOCKET)
        self._schema = schema

    def rows(self, split: Split, first: int, max_rows: int) -> pa.RecordBatch:
        lists = (cast("list[Any]", split.spec[name]) for name in ("texts", "micros"))
        texts, micros = (values[first : first + max_rows] for values in lists)
        columns = [pa.array(texts, pa.string()), pa.array(micros, pa.int64()).cast(_STAMPED.field(1).type)]
        return pa.record_batch(columns[: len(self._schema)], schema=self._schema)
