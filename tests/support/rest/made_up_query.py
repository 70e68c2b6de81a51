"""A query that does not run: facts as the engine would tell them, large and in motion, for pages to show."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock.config import Options
from penstock.coordinator.view import (
    CheckpointState,
    CheckpointView,
    ExecutionState,
    ExecutionView,
    RequestedState,
    RestartView,
    SlotView,
    SubtaskView,
)
from penstock.model.manifest import CaptureMetrics
from penstock.model.metrics import SubtaskReport
from penstock.queries.facts import EdgeShape, GraphShape, OperatorShape, QueryFacts, VertexShape

LANES = 6
STEPS = ("source", "parse", "enrich", "deduplicate", "window", "join", "count", "rank")
LIMIT = 32 << 20
MESSAGES = {ExecutionState.RUNNING: "Processing new data", ExecutionState.SUSPENDED: "Suspended"}
WATERMARK_US = 1_763_900_000_000_000


@dataclass
class MadeUpQuery:
    """``vertices`` of ``parallelism`` subtasks; the vertex called ``slow`` holds up those in front of it. ``facts()``
    moves on with the clock."""

    query_id: str = "6f1c8a52-0000-4000-8000-000000000001"
    name: str = "orders-by-region"
    vertices: int = 50
    parallelism: int = 16
    checkpoints: int = 120
    first_generation: int = 1
    earlier_run: int = 0
    """So many checkpoints are of the run before: this driver does not remember them."""
    state: ExecutionState = ExecutionState.RUNNING
    error_kind: str = ""
    error_text: str = ""
    restarts: tuple[RestartView, ...] = ()
    options: Options = field(default_factory=Options)
    requested: RequestedState | None = None
    location: str = "/data/checkpoints/orders-by-region"
    told: dict[tuple[int, int], SubtaskReport] = field(default_factory=dict)
    """By vertex and index, in place of figures that move on with the clock."""
    began_s: float = field(default_factory=lambda: time.monotonic() - 600)
    began_ms: int = field(default_factory=lambda: int(time.time() * 1000) - 600_000)

    def facts(self) -> QueryFacts:
        shape = self.shape()
        running = self.state is ExecutionState.RUNNING
        return QueryFacts(
            id=self.query_id,
            run_id="3b0b8a52-0000-4000-8000-000000000002",
            name=self.name,
            location=self.location,
            access=None,
            shape=shape,
            requested=self.requested or RequestedState(self.parallelism, 10_000, "auto"),
            view=self._view(shape, running),
            message=MESSAGES.get(self.state, "Terminated with exception"),
            error_kind=self.error_kind,
            error_text=self.error_text,
            last_progress=json.dumps({"inputRowsPerSecond": 81_230.5, "processedRowsPerSecond": 80_912.25}),
            options=replace(self.options, parallelism=self.options.parallelism or self.parallelism),
        )

    def shape(self) -> GraphShape:
        vertices, edges = [], []
        for number in range(self.vertices):
            lane, step = number % LANES, number // LANES
            last = number == self.vertices - 1
            name = "sink" if last else f"{STEPS[step % len(STEPS)]} {lane}"
            role = "source" if step == 0 else "sink" if last else "operator"
            operators = (OperatorShape(f"{name}-0", name, role, f"what {name} says of itself"),)
            vertices.append(VertexShape(number, name, operators))
            if step:
                edges.append((number - LANES, number))
            if step and (number * 7) % 11 == 0 and lane:
                edges.append((number - LANES - 1, number))  # some join the lane beside theirs
        if self.vertices > LANES:
            fed = {producer for producer, _ in edges}
            edges += [(n, self.vertices - 1) for n in range(self.vertices - 1) if n not in fed]
        kinds = ("hash", "forward", "rebalance")
        shown = tuple(
            EdgeShape(number, producer, consumer, kinds[number % 3], ("region",) if number % 3 == 0 else (), "")
            for number, (producer, consumer) in enumerate(dict.fromkeys(edges))
        )
        return GraphShape(tuple(vertices), shown, 128, LIMIT, LIMIT // 4)

    def _view(self, shape: GraphShape, running: bool) -> ExecutionView:
        subtasks = tuple(
            SubtaskView(vertex.name, index, self.told.get((vertex.id, index)) or self._metrics(vertex.id, index))
            for vertex in shape.vertices
            for index in range(self.parallelism)
        )
        slots = tuple(
            SlotView(index, "worker-1.example.org", 4000 + index, running) for index in range(self.parallelism)
        )
        return ExecutionView(
            query_id=self.query_id,
            run_id="3b0b8a52-0000-4000-8000-000000000002",
            name=self.name,
            generation=self.first_generation + len(self.restarts),
            first_generation=self.first_generation,
            state=self.state,
            parallelism=self.parallelism,
            committed_epoch=self.checkpoints,
            slots=slots if running else (),
            subtasks=subtasks if running else (),
            checkpoints=self._history,
            restarts=self.restarts,
            sources_idle=False,
            checkpoints_completed=sum(one.state is CheckpointState.COMPLETE for one in self._history),
            checkpoints_failed=sum(one.state is CheckpointState.FAILED for one in self._history),
            restarts_begun=len(self.restarts),
        )

    def _metrics(self, vertex: int, index: int) -> SubtaskReport:
        """``slow`` vertices are busy, those in front of them wait, all others have little to do."""
        lived_ms = (time.monotonic() - self.began_s) * 1000
        slow = self.vertices // 2
        busy, blocked = 0.12 + (index * 5 + vertex) % 7 / 40, 0.0
        queued_in, queued_out = 40_000 * index, 9_000
        if vertex == slow:
            busy, queued_in = 0.97 - index % 3 / 50, LIMIT - 300_000 * index
        elif vertex in (slow - LANES, slow - 2 * LANES):
            busy, blocked, queued_out = 0.2, 0.72 - index / 100, LIMIT // 4 - 100_000 * index
        rate = 5000.0 / (1 + vertex // LANES)
        return SubtaskReport(
            vertex=vertex,
            index=index,
            rows_in=int(lived_ms / 1000 * rate),
            rows_out=int(lived_ms / 1000 * rate * 0.8),
            busy_ms=lived_ms * busy,
            backpressured_ms=lived_ms * blocked,
            idle_ms=lived_ms * (1 - busy - blocked),
            input_queued_bytes=queued_in,
            output_queued_bytes=queued_out,
            recovered_rows_left=0,
            watermark_us=WATERMARK_US + int(lived_ms * 1000),
            counters={},
        )

    @cached_property
    def _history(self) -> tuple[CheckpointView, ...]:
        return tuple(self.checkpoint_at(number) for number in range(self.earlier_run + 1, self.checkpoints + 1))

    def checkpoint_at(self, number: int) -> CheckpointView:
        failed = number % 17 == 0
        unaligned = number % 5 == 0
        figures = tuple(
            CaptureMetrics(
                vertex=vertex,
                index=index,
                start_delay_ms=2.0 + index,
                alignment_ms=0.0 if unaligned else 12.0 * (vertex % 4),
                sync_ms=1.5,
                async_ms=20.0 + vertex,
                inflight_bytes=30_000 * index if unaligned else 0,
                inflight_persisted_bytes=10_000 * index if unaligned else 0,
                inflight_processed_bytes=2_048 * index,
                inflight_rows=300 * index if unaligned else 0,
                state_bytes=4_000 * (1 + vertex % 5),
                state_total_bytes=900_000,
                unaligned=unaligned,
            )
            for vertex in range(self.vertices)
            for index in range(self.parallelism)
        )
        return CheckpointView(
            checkpoint=number,
            generation=self.first_generation,
            alignment="auto",
            requested=number % 40 == 0,
            label="before-upgrade" if number % 40 == 0 else "",
            state=CheckpointState.FAILED if failed else CheckpointState.COMPLETE,
            triggered_ms=self.began_ms + number * 4_900,
            duration_ms=180 + 37 * (number % 9),
            acknowledged=self.parallelism - 1 if failed else self.parallelism,
            reason="slot 3 did not acknowledge within 600 s: its sink could not reach the store" if failed else "",
            snapshot_id="" if failed else f"chk-{number}",
            subtasks=() if failed or number < self.checkpoints - 30 else figures,
        )
