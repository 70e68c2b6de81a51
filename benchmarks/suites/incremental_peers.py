"""A snapshot of what changed beside one of everything, Penstock and Flink in one run: row f of the plan of ``flip76``.

Eleven sums, minima and maxima of each of a million keys (0.1 GB), of ten million (1 GB), of forty million (4 GB), as
in ``large_state``. First a snapshot of all of it; then one after a hundredth of the keys has changed, some times; then
full ones, which need nothing but themselves: Penstock's portable snapshot, Flink's savepoints. Flink keeps its state in
RocksDB, with incremental checkpoints, or in Java's heap, where each checkpoint is a full one; not 4 GB, as one gigabyte
takes two TaskManagers of 5 GB.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
from pyspark.sql import SparkSession

from benchmarks.lib import harness
from benchmarks.peers.flink import cluster, job
from benchmarks.peers.flink.checkpoints import Checkpoint
from benchmarks.peers.flink.installation import FlinkError
from benchmarks.suites import backpressure, large_state

VALUES = large_state.VALUES
LIMIT_S = 900.0
BACKENDS = ("rocksdb", "hashmap")
FORMS = ("NATIVE", "CANONICAL")
MEMORY = {"taskmanager.memory.process.size": "5g"}
"""Of each TaskManager: room for half of a gigabyte of state as Java objects."""


@dataclass(frozen=True)
class Size:
    """Amount of work for a number of keys: ``later`` snapshots of changes, ``full`` ones of each kind."""

    keys: int
    later: int = 5
    full: int = 2
    backends: tuple[str, ...] = BACKENDS


SIZES = (Size(1_000_000), Size(10_000_000), Size(40_000_000, later=3, full=1, backends=("rocksdb",)))
QUICK = (Size(1_000_000, later=2, full=1),)

Taken = dict[str, float]
"""A snapshot: ``ms`` until it was complete, ``bytes`` that it wrote, ``raw_ms`` to write and fsync as many."""


class Lines(large_state.Inbox):
    """Text source, which Flink reads without further libraries."""

    def __init__(self, folder: Path, keys: int) -> None:
        super().__init__(folder, keys, "int64")

    def _write(self, numbers: large_state.Numbers) -> Path:
        values = self._chance.integers(0, 1 << 40, len(numbers))
        path = self.folder / f"{next(self._count):04d}.txt"
        table = pa.table({"key": numbers * large_state.SPREAD, "value": values})
        csv.write_csv(table, path, csv.WriteOptions(include_header=False, delimiter=" "))
        return path


def figures(ms: float, written: float) -> Taken:
    return {"ms": ms, "bytes": written, "raw_ms": backpressure.raw_write_ms(int(written))}


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# -- the engines ------------------------------------------------------------------------------------------------------


def by_penstock(spark: SparkSession, folder: Path, size: Size) -> dict[str, Any]:
    inbox = large_state.Inbox(folder, size.keys, "int64")
    inbox.add_all()
    with harness.running(large_state.job(large_state.read(spark, inbox, "int64")), mode="update") as query:
        large_state.build(query, size.keys)

        def one(whole: bool) -> Taken:
            done, _ = large_state.taken(query)
            assert (done.state_bytes == done.state_total_bytes) is whole, "it refers to one before, or does not"
            return figures(done.duration_ms, done.state_bytes)

        def changed() -> Taken:
            before = large_state.rows_in(query)
            rows = inbox.add_some(large_state.CHANGED)
            harness.wait_for("the changes to be there", lambda: large_state.rows_in(query) >= before + rows, LIMIT_S)
            return one(whole=False)

        def portable() -> Taken:
            place = harness.LOCATIONS[query.runId] / "portable"
            before, began = folder_bytes(place), time.perf_counter()
            query.snapshot(format="portable")
            took_ms = (time.perf_counter() - began) * 1000
            return figures(took_ms, folder_bytes(place) - before)

        return {
            "first": one(whole=True),
            "changed": [changed() for _ in range(size.later)],
            "full": {"portable": [portable() for _ in range(size.full)]},
        }


def by_flink(peer: cluster.Cluster, backend: str, folder: Path, size: Size) -> dict[str, Any]:
    inbox = Lines(folder, size.keys)
    inbox.add_all()
    with job.running(peer, job.StateSettings(inbox.path, VALUES, backend)) as running:
        wait_for_rows(running, size.keys)
        taken = 0

        def one() -> Taken:
            done = complete(running.checkpoint(LIMIT_S))
            return figures(done.duration_ms, done.written_bytes)

        def changed() -> Taken:
            nonlocal taken
            taken += inbox.add_some(large_state.CHANGED)
            wait_for_rows(running, size.keys + taken)
            return one()

        def saved(form: str) -> Taken:
            began = time.perf_counter()
            path = running.savepoint(folder / "savepoints", form, LIMIT_S)
            took_ms = (time.perf_counter() - began) * 1000
            return figures(took_ms, folder_bytes(Path(path.removeprefix("file:"))))

        return {
            "first": one(),
            "changed": [changed() for _ in range(size.later)],
            "full": {f"savepoint, {form.lower()}": [saved(form) for _ in range(size.full)] for form in FORMS},
        }


def wait_for_rows(running: job.Job, rows: int) -> None:
    harness.wait_for(f"Flink to take {rows} rows", lambda: running.rows_taken() >= rows, LIMIT_S)


def complete(checkpoint: Checkpoint | None) -> Checkpoint:
    if checkpoint is None:
        raise FlinkError(f"Flink's checkpoint was not complete within {LIMIT_S:.0f} s")
    return checkpoint


# -- all of them, in turns --------------------------------------------------------------------------------------------

Engines = dict[str, Callable[[Path, Size], dict[str, Any]]]


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    with cluster.Cluster(harness.SLOTS, **MEMORY) as peer:
        sizes = {str(size.keys): measured(engines(spark, peer, size), size) for size in (QUICK if quick else SIZES)}
        return {"flink": peer.version, "values": VALUES, "changed": large_state.CHANGED, "keys": sizes}


def engines(spark: SparkSession, peer: cluster.Cluster, size: Size) -> Engines:
    found: Engines = {"Penstock": partial(by_penstock, spark)}
    return found | {f"Flink, {backend}": partial(by_flink, peer, backend) for backend in size.backends}


def measured(those: Engines, size: Size) -> dict[str, Any]:
    found = {}
    for engine, one in those.items():
        with tempfile.TemporaryDirectory(prefix="penstock-bench-state-") as folder:
            found[engine] = one(Path(folder), size)
        print(f"  {size.keys} keys, {engine}: {found[engine]}", flush=True)
    return found
