"""Keyed state larger than its memory: the rocksdb backend beside the memory backend, in alternating rounds.

A keyed count over distinct int64 keys in random order, one table, batches of 65,536 rows: first every key once
(*insert*), then every key again in another order (*update*). rocksdb gets a quarter of the bytes that its rows take
(written buffers and cached blocks); memory keeps all. Each run is a process of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import ROOT
from penstock.state.table import KeyedTable, StateBackend, TableSpec

ROUNDS = 5
KEYS = 5_000_000
QUICK_KEYS = 500_000
BATCH_ROWS = 65_536
ROW_BYTES = 32
"""Of a row in RocksDB: key group, flags and key (11), stamp, flags and count (13), RocksDB's own 8."""

FORMS = ("memory", "rocksdb")
SPEC = TableSpec(pa.schema([("key", pa.int64()), ("count", pa.int64())]), 1, 128)


def open_backend(form: str, keys: int) -> StateBackend:
    if form == "memory":
        from penstock.state.memory_table import MemoryBackend

        return MemoryBackend()
    from penstock.state.rocksdb_table import RocksDBBackend

    return RocksDBBackend(keys * ROW_BYTES // 4)


def count_up(table: KeyedTable, keys: npt.NDArray[np.int64]) -> float:
    """Rows per second."""
    started = time.perf_counter()
    for start in range(0, len(keys), BATCH_ROWS):
        batch = pa.array(keys[start : start + BATCH_ROWS])
        with table.edit([batch], len(batch)) as edited:
            counts, known = edited.values[0].write()
            counts[edited.rows] += 1
            known[edited.rows] = True
    return len(keys) / (time.perf_counter() - started)


def measure(form: str, count: int) -> dict[str, float]:
    """Measure in this process."""
    random = np.random.default_rng(1)
    keys = random.permutation(count) * 7919
    backend = open_backend(form, count)
    table = backend.create_table("counts", SPEC)
    rates = {"insert": count_up(table, keys)}
    started = time.perf_counter()
    capture = table.capture()
    rates["capture_ms"] = 1000 * (time.perf_counter() - started)
    rates["update"] = count_up(table, random.permutation(keys))
    started = time.perf_counter()
    rows = sum(batch.num_rows for batch in capture.base(0, 127))
    rates["base"] = rows / (time.perf_counter() - started)
    assert rows == len(table) == count
    capture.release()
    total = sum(int(step.values[0].read()[0][step.rows].sum()) for step in table.scan(10_000))
    assert total == 2 * count, f"{total} instead of {2 * count}"
    backend.close()
    return rates


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    keys = QUICK_KEYS if quick else KEYS
    found: dict[str, list[dict[str, float]]] = {form: [] for form in FORMS}
    for number in range(2 if quick else ROUNDS):
        for form in FORMS if number % 2 == 0 else FORMS[::-1]:
            found[form].append(_apart(form, keys))
        print(f"  round {number + 1}: " + ", ".join(f"{form} {_shown(r[-1])}" for form, r in found.items()), flush=True)
    ratios = {
        phase: statistics.median(
            ours[phase] / theirs[phase] for ours, theirs in zip(found["rocksdb"], found["memory"], strict=True)
        )
        for phase in ("insert", "update", "base")
    }
    return {"keys": keys, "runs": found, "ratio_to_memory": ratios}


def _apart(form: str, keys: int) -> dict[str, float]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "benchmarks.suites.state_rocksdb", form, str(keys)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def _shown(rates: dict[str, float]) -> str:
    return "/".join(f"{rates[phase] / 1e6:.2f}" for phase in ("insert", "update", "base"))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
