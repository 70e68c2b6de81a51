"""Count the modules of ours that one buffer and one barrier pass in a job with two slots.

The job is: a source, a hash edge, a running aggregation, a sink. Its slots are threads of this process. Only what runs
on the threads of subtasks and sockets counts for a buffer; for a barrier, everything from the trigger to the complete
snapshot counts, the coordinator included. Operators, connectors and functions are left out. A module counts if one of
its functions is called in every round, and never while nothing is sent: other calls are reports and time-outs that
happened to fall into a round.

Run it with ``python -m benchmarks.suites.walks``; it prints both numbers and lists the modules.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pyarrow as pa

import penstock
from penstock.config import Options
from penstock.connectors.base import Sink, SinkCommitter, SinkContext, SinkWriter, Source, SourceReader
from penstock.coordinator.launching import ControlAddress
from penstock.coordinator.query_execution import QueryExecution
from penstock.model.commits import EpochCommit
from penstock.model.elements import Alignment
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split
from penstock.operators.base import Operator
from penstock.worker.slot import slot_main
from penstock.worker.slot_task import SlotTask

SLOTS = 2
ROUNDS = 8
ROWS_PER_BATCH = 1_000
SETTLE_S = 0.05
"""Credit is back by then."""
IDLE_S = 0.5
"""Length of a round in which nothing is sent."""
TIMEOUT_S = 30.0
LEFT_OUT = ("connectors", "functions", "operators")
ROWS = pa.schema([("key", pa.int64())])

Function = tuple[str, str]
"""File below the package, and qualified name."""


class Recorder:
    """Collects the functions that are called during a round, on threads that begin after the recorder."""

    def __init__(self) -> None:
        self._root = str(Path(penstock.__file__).parent) + "/"
        self._open: Callable[[str], bool] | None = None
        self._seen: set[Function] = set()
        threading.setprofile(self._called)

    def round(self, action: Callable[[], None], counts: Callable[[str], bool]) -> set[Function]:
        """Return the functions that were called during ``action`` on threads whose name ``counts``."""
        self._seen = set()
        self._open = counts
        action()
        self._open = None
        return {function for function in self._seen if function[0].split("/")[0] not in LEFT_OUT}

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        counts = self._open
        if event == "call" and counts is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._root) and counts(threading.current_thread().name):
                self._seen.add((file[len(self._root) :], frame.f_code.co_qualname))


@dataclass
class Tap:
    """Lets the sources read, a batch at a time, and knows how many rows have come to the sinks."""

    batches: int = 0
    rows: int = 0


TAP = Tap()


class TapSource(Source):
    schema = ROWS

    def describe(self) -> str:
        return "Tap"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        return Discovery([] if state else [Split("tap-0", {})], 1)

    def create_reader(self) -> SourceReader:
        return TapReader()


class TapReader(SourceReader):
    def __init__(self) -> None:
        self._splits: list[Split] = []

    def add_split(self, split: Split) -> None:
        self._splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if not self._splits or TAP.batches == 0:
            return None
        TAP.batches -= 1
        return pa.RecordBatch.from_arrays([pa.array(range(ROWS_PER_BATCH), pa.int64())], schema=ROWS)

    def wake_after_ms(self) -> int:
        return 5

    def snapshot(self) -> list[Split]:
        return list(self._splits)


class PassSpec(OperatorSpec):
    operator_id = "pass"
    name = "Pass"
    output_schema = ROWS

    def create(self) -> Operator:
        return Pass()


class Pass(Operator):
    def process(self, batch: pa.RecordBatch):  # type: ignore[no-untyped-def]
        yield batch


class TapSink(Sink):
    def describe(self) -> str:
        return "Tap"

    def create_writer(self) -> SinkWriter:
        return TapWriter()

    def create_committer(self) -> SinkCommitter:
        return TapCommitter()


class TapWriter(SinkWriter):
    def open(self, context: SinkContext) -> None:
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        TAP.rows += batch.num_rows

    def prepare(self, epoch: int) -> bytes | None:
        return b"rows"


class TapCommitter(SinkCommitter):
    def open(self, query_id: str) -> None:
        self._query_id = query_id

    def commit(self, permit: EpochCommit) -> None:
        assert permit.messages


class ThreadJob:
    """One Generation of slots as threads; they end when their links do."""

    def __init__(self, task: SlotTask, parallelism: int) -> None:
        self.error: BaseException | None = None
        self._threads = [
            threading.Thread(target=slot_main, args=(index, task), kwargs={"own_process": False}, daemon=True)
            for index in range(parallelism)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def cancel(self) -> None:
        """Do nothing: the driver has closed the links, and the slots end by that."""

    def wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self.done


class ThreadLauncher:
    def control_address(self) -> ControlAddress:
        return ControlAddress("127.0.0.1", "127.0.0.1")

    def usable_slots(self) -> int:
        return SLOTS

    def total_slots(self) -> int:
        return SLOTS

    def launch(self, task: SlotTask, parallelism: int) -> ThreadJob:
        return ThreadJob(task, parallelism)


def job() -> JobGraph:
    """Return a source and a sink with a hash edge between them."""
    return JobGraph(
        vertices=(
            Vertex(0, "Tap", SourceSpec("source", "Tap", TapSource()), (), None),
            Vertex(1, "Pass", None, (PassSpec(),), SinkSpec("sink", "Tap", TapSink())),
        ),
        edges=(Edge(0, 0, 1, EdgeKind.HASH, ROWS, (0,)),),
        parallelism=SLOTS,
        max_parallelism=128,
    )


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {TIMEOUT_S:.0f} s for {what}")
        time.sleep(0.002)


def measure(location: str) -> tuple[set[str], ...]:
    """Return the modules of a buffer's walk and those of a barrier's."""
    recorder = Recorder()
    options = Options(checkpoint_interval_ms=600_000, checkpoint_alignment=Alignment.UNALIGNED)
    execution = QueryExecution(
        job(),
        name="walks",
        run_id=str(uuid.uuid4()),
        location=location,
        options=options,
        launcher=ThreadLauncher(),
    )
    execution.start()
    try:
        wait_for(
            lambda: len(execution.view().slots) == SLOTS and all(s.running for s in execution.view().slots), "slots"
        )

        def send_buffer() -> None:
            expected = TAP.rows + ROWS_PER_BATCH
            TAP.batches = 1
            wait_for(lambda: TAP.rows == expected, "a batch at the sink")
            time.sleep(SETTLE_S)

        def take_snapshot() -> None:
            execution.request_snapshot(timeout_s=TIMEOUT_S)
            time.sleep(SETTLE_S)

        send_buffer()  # schemas travel with the first one
        on_the_way = ("penstock-io-", "penstock-v")
        idle = [recorder.round(lambda: time.sleep(IDLE_S), lambda _: True) for _ in range(ROUNDS)]
        buffer = [recorder.round(send_buffer, lambda name: name.startswith(on_the_way)) for _ in range(ROUNDS)]
        barrier = [recorder.round(take_snapshot, lambda _: True) for _ in range(ROUNDS)]
    finally:
        execution.stop()
    passed = (set.intersection(*rounds) - set.union(*idle) for rounds in (buffer, barrier))
    return tuple({file for file, _ in functions} for functions in passed)


def main() -> None:
    with tempfile.TemporaryDirectory() as location:
        for name, modules in zip(("buffer", "barrier"), measure(location), strict=True):
            print(f"{name}: {len(modules)} modules", *sorted(modules), sep="\n  ")


if __name__ == "__main__":
    sys.exit(main())
