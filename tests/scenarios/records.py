"""Records that know what they are: a header tells producer, sequence number, length and a checksum over all of it.

The producer of a record is its split, and ``sequence`` counts a producer's records of one key from 0 on. On a path that
is hashed all the way they must therefore come in that order; anywhere, each must come once and unharmed.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import pyarrow as pa

from penstock.connectors.base import Source, SourceReader
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split

HEADER = struct.Struct("<qqqqq")
RECORD = pa.schema(
    [
        ("key", pa.int64()),
        ("other", pa.int64()),
        ("producer", pa.int64()),
        ("sequence", pa.int64()),
        ("length", pa.int64()),
        ("checksum", pa.int64()),
        ("payload", pa.large_binary()),
        ("input", pa.int64()),
        ("wrong", pa.int64()),
    ]
)
"""``other``: a second key, which the first one decides. ``input`` and ``wrong`` are the operators' (see there)."""
KEY, OTHER, PRODUCER, SEQUENCE, LENGTH, CHECKSUM, PAYLOAD, INPUT, WRONG = range(9)
SPLITS_PER_SOURCE = 1_000
"""A source's number is its producers' number divided by this."""
_NOISE = random.Random(0).randbytes(3 << 20)


def other_key(key: int) -> int:
    return key * 7 % 5


def checksum(key: int, other: int, producer: int, sequence: int, payload: bytes) -> int:
    return crc32(payload, crc32(HEADER.pack(key, other, producer, sequence, len(payload))))


@dataclass(frozen=True)
class Records(Source):
    """``splits`` splits of ``rows`` records over ``keys`` keys, payloads of random length from ``shortest`` to
    ``longest`` bytes. ``number``: which of the job's sources; ``at_once``: records per batch.
    While the file ``pace`` exists, a reader gives ``slow_rows`` records per second and no more.
    """

    number: int = 0
    splits: int = 10
    rows: int = 500
    keys: int = 13
    shortest: int = 0
    longest: int = 300
    at_once: int = 1_000
    pace: str = ""
    slow_rows: float = 2_000
    schema = RECORD

    def describe(self) -> str:
        return f"Records[{self.number}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        found = 0 if state is None else int(state)  # type: ignore[call-overload]
        until = min(self.splits, found + 4)
        return Discovery(
            [Split(f"r{self.number}-{n}", {"producer": self.producer(n)}) for n in range(found, until)], until
        )

    def create_reader(self) -> RecordReader:
        return RecordReader(self)

    def producer(self, split: int) -> int:
        return self.number * SPLITS_PER_SOURCE + split

    def names(self) -> list[tuple[int, int, int]]:
        """(producer, key, sequence) of all records."""
        return [
            (self.producer(split), row % self.keys, row // self.keys)
            for split in range(self.splits)
            for row in range(self.rows)
        ]

    def batch(self, producer: int, first: int, count: int) -> pa.RecordBatch:
        """Records ``[first, first + count)`` of a producer: always the same."""
        columns: list[list[object]] = [[] for _ in RECORD]
        for row in range(first, first + count):
            drawn = crc32(HEADER.pack(producer, row, 0, 0, 0))
            length = self.shortest + drawn % (self.longest - self.shortest + 1)
            start = drawn // 7 % (len(_NOISE) - length + 1)
            payload = _NOISE[start : start + length]
            key, sequence = row % self.keys, row // self.keys
            told = checksum(key, other_key(key), producer, sequence, payload)
            record = (key, other_key(key), producer, sequence, length, told, payload, 0, 0)
            for column, value in zip(columns, record, strict=True):
                column.append(value)
        return pa.RecordBatch.from_pydict(dict(zip(RECORD.names, columns, strict=True)), schema=RECORD)


class RecordReader(SourceReader):
    def __init__(self, source: Records, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._splits: list[Split] = []
        self._clock_s = clock_s
        self._next_s = 0.0

    def add_split(self, split: Split) -> None:
        self._splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        slow = bool(self._source.pace) and Path(self._source.pace).exists()
        if not self._splits or (slow and self._clock_s() < self._next_s):
            return None
        split = self._splits[0]
        done = int(split.position.get("rows", 0))  # type: ignore[call-overload]
        rows = min(max_rows, self._source.rows - done, self._source.at_once, 100 if slow else max_rows)
        if done + rows == self._source.rows:
            self._splits.pop(0)
        else:
            self._splits[0] = Split(split.split_id, split.spec, {"rows": done + rows})
        self._next_s = self._clock_s() + rows / self._source.slow_rows
        return self._source.batch(int(split.spec["producer"]), done, rows)  # type: ignore[call-overload]

    def snapshot(self) -> list[Split]:
        return list(self._splits)
