"""Keyed state in memory: rates, bytes per row, and what captures cost beside plain pyarrow.

*rates*: a keyed count as an operator does it, two processes with half of the keys each, beside pyarrow's own
``group_by`` of the same rows, two processes as well. *captures*: one table of 1 GB (an int64 key, eleven int64 values)
written whole and as what changed, each with fsync, beside ``pyarrow.ipc`` writing the same rows, in alternating rounds.
Every part runs in a fresh process: memory is what the system says that it takes.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.lib import harness
from penstock.malloc import keep_freed_memory
from penstock.operators.aggregate.calls import AggregateCall, partial_schema
from penstock.operators.aggregate.final import FinalAggregateSpec
from penstock.operators.base import Operator, OperatorContext
from penstock.state.memory_table import MemoryBackend, MemoryTable
from penstock.state.stored_form import delta_schema
from penstock.state.table import TableSpec

KEYS = 10_000_000
BATCH = 65_536
UPDATES = 4_000_000
VALUES = 11
CHANGED = 0.01
ROUNDS = 5
SPREAD = 7_919
"""Keys are so far apart that no table over their range would do."""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def batches(keys: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    for start in range(0, len(keys), BATCH):
        yield keys[start : start + BATCH]


def rates(slot: int, keys: int) -> dict[str, float]:
    """A count by key as an operator: new keys, then known ones."""
    call = AggregateCall("count_star", 0, pa.null(), pa.int64())
    source = pa.schema([("k", pa.int64())])
    spec = FinalAggregateSpec(
        operator_id="count",
        name="Count",
        output_schema=pa.schema([("k", pa.int64()), ("n", pa.int64())]),
        input_schema=partial_schema(source, (0,), (call,)),
        key_count=1,
        calls=(call,),
        mode="update",
    )
    chance = np.random.default_rng(slot)
    mine = (chance.permutation(keys // harness.SLOTS).astype(np.int64) * harness.SLOTS + slot) * SPREAD
    known = chance.choice(mine, UPDATES * keys // KEYS)

    def opened() -> Operator:
        operator = spec.create()
        operator.open(OperatorContext("count", 0, 1, 128, MemoryBackend()))
        return operator

    def feed(operator: Operator, rows: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[float, float]:
        slowest_s, started = 0.0, time.perf_counter()
        for some in batches(rows):
            began = time.perf_counter()
            columns = [pa.array(some), pa.array(np.ones(len(some), np.int64))]
            list(operator.process(pa.RecordBatch.from_arrays(columns, schema=spec.input_schema)))
            slowest_s = max(slowest_s, time.perf_counter() - began)
        return len(rows) / (time.perf_counter() - started), slowest_s * 1000

    feed(opened(), known[:BATCH])  # what is imported and allocated once
    operator, before = opened(), resident_bytes()
    insert, slowest_ms = feed(operator, mine)
    taken = resident_bytes() - before
    update, _ = feed(operator, known)
    return {"insert": insert, "update": update, "slowest_ms": slowest_ms, "row_bytes": taken / len(mine)}


def group_by(slot: int, keys: int) -> dict[str, float]:
    """The reference: pyarrow counts the same rows, all at once."""
    mine = (np.random.default_rng(slot).permutation(keys // harness.SLOTS).astype(np.int64)) * SPREAD
    table = pa.table({"k": mine})
    started = time.perf_counter()
    table.group_by("k", use_threads=False).aggregate([([], "count_all")])
    return {"insert": len(mine) / (time.perf_counter() - started)}


def written(path: Path, schema: pa.Schema, pieces: Iterable[pa.RecordBatch]) -> tuple[float, int]:
    """Seconds and bytes of an Arrow IPC file, durable."""
    started = time.perf_counter()
    with path.open("wb") as file:
        with pa.ipc.new_file(file, schema) as out:
            for piece in pieces:
                out.write_batch(piece)
        file.flush()
        os.fsync(file.fileno())
    elapsed, size = time.perf_counter() - started, path.stat().st_size
    path.unlink()
    return elapsed, size


def captures(slot: int, keys: int) -> dict[str, Any]:
    """One table of ``keys`` rows, captured while it is written to."""
    schema = pa.schema([("k", pa.int64()), *((f"v{n}", pa.int64()) for n in range(VALUES))])
    table = MemoryTable(TableSpec(schema, 1, 128))
    chance = np.random.default_rng(0)
    known = chance.permutation(keys).astype(np.int64) * SPREAD

    def write(rows: np.ndarray[Any, np.dtype[np.int64]]) -> float:
        began = time.perf_counter()
        with table.edit([pa.array(rows)], len(rows)) as found:
            for vector in found.values:
                data, valid = vector.write()
                data[found.rows], valid[found.rows] = rows, True
        return (time.perf_counter() - began) * 1000

    for some in batches(known):
        write(some)
    figures: dict[str, Any] = {name: [] for name in ("pause_ms", "plain_s", "full_s", "delta_s", "ratio", "share")}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-state-", dir=Path.cwd()) as folder:
        path = Path(folder) / "state.arrow"
        for number in range(ROUNDS if keys == KEYS else 2):
            began = time.perf_counter()
            full = table.capture()
            figures["pause_ms"].append((time.perf_counter() - began) * 1000)
            if number == 0:
                rows = list(full.base(0, 127))
            plain_s, plain_bytes = written(path, full.schema, rows)
            full_s, full_bytes = written(path, full.schema, full.base(0, 127))
            for some in batches(chance.choice(known, int(CHANGED * keys), replace=False)):
                write(some)
            began = time.perf_counter()
            later = table.capture()
            figures["pause_ms"].append((time.perf_counter() - began) * 1000)
            delta = later.delta(full.serial, 0, 127)
            delta_s, delta_bytes = written(path, delta_schema(full.schema), delta)
            later.forget_before()
            full.release()
            later.release()
            for name, figure in (("plain_s", plain_s), ("full_s", full_s), ("delta_s", delta_s)):
                figures[name].append(figure)
            figures["ratio"].append(plain_s / full_s)
            figures["share"].append(delta_s / full_s)
        figures |= {"plain_bytes": plain_bytes, "full_bytes": full_bytes, "delta_bytes": delta_bytes}
    figures["changed_bytes"] = int(CHANGED * keys) * 8 * (VALUES + 1)
    figures["alone_ms"], figures["while_read_ms"] = _beside_reader(table, write, chance, known)
    return figures


def _beside_reader(table: MemoryTable, write: Any, chance: np.random.Generator, known: Any) -> tuple[Any, Any]:
    """Milliseconds of batches of 8,192 rows without a capture, and while one is being read on another thread."""
    alone = [write(chance.choice(known, 8192)) for _ in range(50)]
    capture = table.capture()
    reader = threading.Thread(target=lambda: [None for _ in capture.base(0, 127)])
    reader.start()
    beside = []
    while reader.is_alive():
        beside.append(write(chance.choice(known, 8192)))
    capture.release()
    return harness.quantiles(alone), harness.quantiles(beside)


PARTS = {"rates": rates, "group_by": group_by, "captures": captures}


def part(name: str, keys: int, slots: int = 1) -> list[dict[str, Any]]:
    """The figures of processes that run a part side by side."""
    commands = [[sys.executable, "-m", "benchmarks.suites.state", name, str(slot), str(keys)] for slot in range(slots)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate()[0] for process in running]
    return [json.loads(output) for output in outputs]


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    keys = KEYS // 10 if quick else KEYS
    rounds = []
    for _ in range(1 if quick else 3):
        ours, plain = part("rates", keys, harness.SLOTS), part("group_by", keys, harness.SLOTS)
        rounds.append(
            {name: sum(figures[name] for figures in ours) for name in ("insert", "update")}
            | {
                "group_by": sum(figures["insert"] for figures in plain),
                "row_bytes": statistics.mean(figures["row_bytes"] for figures in ours),
                "slowest_ms": max(figures["slowest_ms"] for figures in ours),
            }
        )
        print(f"  {rounds[-1]}", flush=True)
    return {"keys": keys, "rates": rounds, "captures": part("captures", keys)[0]}


if __name__ == "__main__":
    keep_freed_memory()  # as every slot does
    print(json.dumps(PARTS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))))
