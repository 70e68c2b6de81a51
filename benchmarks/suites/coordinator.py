"""Cost of a checkpoint for the driver of a large job: real coordinator, executor and metrics, made-up slots.

``JobCoordinator``, ``CommandExecutor`` over a ``LocalStore`` and ``QueryMetrics`` are driven by hand, on one thread:
the trigger, from each slot its figures and its acknowledgement as the bytes that come over its link, the metadata, the
entry in the log, the commit, the collection. There are no sockets, no slots, and no threads that wait for
each other. Each case has a process of its own::

    python -m benchmarks.suites.coordinator "event time" 100 20
"""

from __future__ import annotations

import gc
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.lib.metered_store import MeteredStore
from benchmarks.suites.synthetic_slots import SHAPES, VERTICES, Shape, Slots, channels, job
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.commands import (
    AbandonStagedData,
    Command,
    EpochsCommitted,
    JobEvent,
    NotifySourceCommitted,
    OpenGeneration,
    Output,
    SnapshotCompleted,
    WriteSnapshot,
)
from penstock.coordinator.machines.checkpoint_events import (
    CheckpointAborted,
    CheckpointPolicy,
    CollectGarbage,
    CommitEpoch,
    LogSnapshot,
    ReserveIds,
    Tick,
)
from penstock.coordinator.machines.job import JobCoordinator
from penstock.coordinator.machines.splits import Discover
from penstock.coordinator.metrics import QueryMetrics
from penstock.model.elements import Alignment
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    FromSlot,
    NotifyCheckpointComplete,
    ReaderProgressed,
    ReaderStatus,
    RequestSplit,
    SlotRunning,
    TriggerCheckpoint,
)
from penstock.model.splits import Split
from penstock.network.messages import SlotMetrics, ToDriver
from penstock.snapshots.catalog import metadata_path
from penstock.snapshots.format.plan import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # what it costs a process to have it is not measured

PARALLELISMS = {
    "state": (1, 10, 100, 300, 1_000),
    "long chains": (1, 10, 100, 1_000),
    "event time": (1, 10, 100, 300, 1_000),
    "in flight": (1, 10, 100, 300),
}
"""At 1,000 the rows in flight of nine million channels would take the made-up slots themselves many gigabytes."""
WARM_UP = 4
"""Checkpoints: then there is one that is collected for each that is taken, and deltas of several are there."""
SUBTASKS_IN_ALL = 20_000
"""Over the checkpoints of a case: of a small job more are measured."""
FEWEST, MOST = 4, 100
INTERVAL_MS = 1_000
RETAINED = 3
PARTS = {
    WriteSnapshot: "metadata",
    LogSnapshot: "log",
    ReserveIds: "log",
    CommitEpoch: "commit",
    CollectGarbage: "collection",
    OpenGeneration: "start",
    AbandonStagedData: "commit",
    Discover: "sources",
    NotifySourceCommitted: "sources",
}
BEHIND_THE_ENTRY = ("commit", "collection", "sources")
"""Parts that do not belong to how long a checkpoint takes, though they come with each."""


class Driver:
    """``cpu_s``: by part, since it was cleared last."""

    def __init__(self, shape: Shape, parallelism: int, folder: Path) -> None:
        graph = job(parallelism)
        policy = CheckpointPolicy(INTERVAL_MS, timeout_ms=3_600_000, alignment=Alignment.AUTO)
        self.store = MeteredStore(folder)
        self.core = JobCoordinator(graph, plan_of(graph), "query", policy)
        self.figures = QueryMetrics(graph, "query", "run", None)
        self.effects = CommandExecutor(
            graph,
            "query",
            self.store,
            committers={v.sink.operator_id: v.sink.sink.create_committer() for v in graph.vertices if v.sink},
            sources={v.id: v.source.source for v in graph.vertices if v.source},
            token=lambda: "0" * 32,
            wall_ms=lambda: int(time.time() * 1000),
            retained=RETAINED,
        )
        self.cpu_s: dict[str, float] = defaultdict(float)
        self.refused = ""
        self._splits: dict[int, tuple[Split, ...]] = {}
        self._slots = Slots(folder, shape, parallelism, self._splits)
        self._parallelism = parallelism
        self._works: deque[Command] = deque()
        self._checkpoint = 0
        self._now_ms = 0.0
        self._decoder = msgspec.msgpack.Decoder(ToDriver)
        self._encoder = msgspec.msgpack.Encoder()

    def start(self) -> None:
        """A first Generation whose slots run, with a split for each reader."""
        with self._part("machine"):
            outputs = self.core.open()
        self._take(outputs)
        self._work()
        for slot in range(self._parallelism):
            self._feed(FromSlot(self.core.generation, SlotRunning(slot)))
        self._feed(Tick())
        self._work()
        for index in range(self._parallelism):
            for message in (ReaderStatus(0, index, 0, 0), RequestSplit(0, index)):
                self._feed(FromSlot(self.core.generation, message))
        self._work()
        assert len(self._splits) == self._parallelism, "every reader has a split"

    def checkpoint(self) -> None:
        """A whole one, committed and collected; or refused."""
        self._now_ms += INTERVAL_MS
        self._feed(Tick())
        self._slots.write_files(self._checkpoint)
        for figures, answer in self._slots.say(self._checkpoint):
            self._hear(figures)
            self._hear(answer)
        self._work()
        done = self.core.coordinator.committed_epoch
        assert self.refused or done == self._checkpoint, f"epoch {done} is committed, and not {self._checkpoint}"

    @property
    def metadata_bytes(self) -> int:
        return self.store.size(metadata_path(self._checkpoint)) or 0

    def _hear(self, data: bytes) -> None:
        """Handle a message of a slot as ``CoordinatorService`` does."""
        generation = self.core.generation
        with self._part("messages"):
            message = self._decoder.decode(data)
        match message:
            case SlotMetrics():
                with self._part("figures"):
                    self.figures.metrics(message)
                source = message.subtasks[0]
                progress = ReaderProgressed(0, source.index, source.watermark_us)
                self._feed(FromSlot(generation, progress), "figures")
            case AcknowledgeCheckpoint(checkpoint, manifest):
                with self._part("figures"):
                    self.figures.acknowledged(checkpoint)
                self._feed(FromSlot(generation, AcknowledgeCheckpoint(checkpoint, manifest)))

    def _feed(self, event: JobEvent, part: str = "machine") -> None:
        with self._part(part):
            outputs = self.core.handle(event, self._now_ms)
            self.core.next_wake_ms()
            self.figures.turned(self.core.is_idle)
        self._take(outputs)

    def _take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Command):
                self._works.append(output)
            else:
                self._tell(output)

    def _tell(self, output: Output) -> None:
        match output:
            case TriggerCheckpoint(checkpoint, alignment):
                self._checkpoint = checkpoint
                with self._part("figures"):
                    self.figures.triggered(checkpoint, alignment.value)
                self._send(output)
            case NotifyCheckpointComplete():
                self._send(output)
            case SnapshotCompleted(metadata):
                with self._part("figures"):
                    self.figures.complete(metadata)
            case EpochsCommitted(epoch):
                with self._part("figures"):
                    self.figures.committed(epoch)
            case CheckpointAborted(_, reason):
                self.refused = reason
            case AssignSplits(_, index, splits):
                self._splits[index] = splits

    def _send(self, message: TriggerCheckpoint | NotifyCheckpointComplete) -> None:
        """To every slot, which is encoded anew."""
        with self._part("messages"):
            for _ in range(self._parallelism):
                self._encoder.encode(message)

    def _work(self) -> None:
        while self._works:
            work = self._works.popleft()
            with self._part(PARTS[type(work)]):
                event = self.effects.execute(work)
            if event is not None:
                self._feed(event)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Measure the CPU time of one part; time in the store counts as the store's until the entry is in the log."""
        began_s, before_s = time.thread_time(), self.store.cpu_s
        yield
        in_store_s = 0.0 if name in BEHIND_THE_ENTRY else self.store.cpu_s - before_s
        self.cpu_s["store"] += in_store_s
        self.cpu_s[name] += time.thread_time() - began_s - in_store_s


# -- a case, in a process of its own ----------------------------------------------------------------------------------


def case(shape: str, parallelism: int, count: int) -> dict[str, Any]:
    """CPU milliseconds of ``count`` checkpoints behind the warm-up, or of the one that was refused."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        driver = Driver(SHAPES[shape], parallelism, Path(folder))
        driver.start()
        start_s = sum(driver.cpu_s.values())
        gc.collect()
        before = memory()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        rounds = [_once(driver)]
        peak_bytes = memory()["peak"] - before["now"]
        while not driver.refused and len(rounds) < WARM_UP:
            rounds.append(_once(driver))
        settled_bytes = memory()["now"]
        if not driver.refused:
            rounds = [_once(driver) for _ in range(count)]
        return {
            "start_cpu_ms": start_s * 1000,
            "cpu_ms": rounds,
            "metadata_bytes": driver.metadata_bytes,
            "refused": driver.refused,
            "peak_bytes": peak_bytes,
            "kept_bytes": (memory()["now"] - settled_bytes) / len(rounds),
        }


def _once(driver: Driver) -> dict[str, float]:
    """CPU milliseconds by part."""
    driver.cpu_s.clear()
    driver.checkpoint()
    return {part: used_s * 1000 for part, used_s in sorted(driver.cpu_s.items())}


def memory() -> dict[str, int]:
    """Bytes of this process: now, and at its peak."""
    status = Path("/proc/self/status").read_text()
    found = {name: re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE) for name, field in _FIELDS.items()}
    return {name: int(match[1]) * 1024 for name, match in found.items() if match}


_FIELDS = {"now": "VmRSS", "peak": "VmHWM"}


# -- all of them ------------------------------------------------------------------------------------------------------


def run(_spark: SparkSession, quick: bool) -> dict[str, object]:
    """Run the benchmark by shape and number of subtasks."""
    found: dict[str, dict[str, Any]] = {}
    for shape in SHAPES:
        found[shape] = {}
        for parallelism in PARALLELISMS[shape][: 3 if quick else None]:
            subtasks = parallelism * VERTICES
            count = max(FEWEST, min(MOST, SUBTASKS_IN_ALL // subtasks) // (5 if quick else 1))
            found[shape][str(subtasks)] = one = _apart(shape, parallelism, count)
            print(f"  {shape}, {subtasks} subtasks: {summary(one)}", flush=True)
    return {"shapes": found}


def _apart(shape: str, parallelism: int, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.suites.coordinator", shape, str(parallelism), str(count)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said)
    return {"parallelism": parallelism, "channels": channels(parallelism), **found}


def until_logged_ms(spent: dict[str, float]) -> float:
    """Return the time of one checkpoint from the trigger to the entry in the log."""
    return sum(ms for part, ms in spent.items() if part not in BEHIND_THE_ENTRY)


def summary(found: dict[str, Any]) -> str:
    took = sorted(until_logged_ms(spent) for spent in found["cpu_ms"])
    told = found["refused"] or f"{found['metadata_bytes']:,} bytes of metadata"
    return f"{took[len(took) // 2]:.2f} ms of CPU until it is logged, {told}"


def exponent(small: tuple[int, float], large: tuple[int, float]) -> float:
    """Return the exponent of growth between two sizes: 1 is linear, 2 is quadratic."""
    return math.log(large[1] / small[1]) / math.log(large[0] / small[0])


if __name__ == "__main__":
    print(json.dumps(case(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
