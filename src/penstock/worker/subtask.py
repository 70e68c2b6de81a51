"""One subtask: a chain of operators between an input gate (or a source) and its outputs (or a sink).

It does no I/O and never blocks. ``step`` runs on one owner thread: first control events, then watermarks, then input.
The last two run only while the outputs have room. Its ``SubtaskHost`` provides everything it needs from outside. All
information from outside comes through its inbox. The slot process and the simulator run this same class.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import assert_never

import pyarrow as pa

from penstock.config import Isolation, Options
from penstock.connectors.base import SinkContext, SinkWriter
from penstock.errors import ProtocolViolation
from penstock.model.elements import END_OF_TIME_US, Alignment, Barrier
from penstock.model.ids import CheckpointId, GenerationId, SubtaskId
from penstock.model.job_graph import JobGraph, Vertex
from penstock.model.manifest import CaptureMetrics
from penstock.model.messages import (
    AbortCheckpoint,
    AdvanceWatermark,
    AssignSplits,
    FreezeReaders,
    NoMoreSplits,
    NotifyCheckpointComplete,
    PauseReaders,
    PollAgain,
    SourceIdle,
)
from penstock.model.metrics import SubtaskReport
from penstock.operators.base import OperatorContext
from penstock.operators.python.isolation.operator import isolated
from penstock.protocol.alignment import CaptureReady, Command, Declined, EndEpoch, Record
from penstock.protocol.gate import BarrierReached, ChannelEnded, WatermarkRose
from penstock.protocol.input import RowRange
from penstock.protocol.recovered import RecoveredRows
from penstock.state.table import StateBackend
from penstock.worker.activity import Activity
from penstock.worker.chain import Chain, open_stages
from penstock.worker.host import (
    Arrived,
    EpochEnd,
    Granted,
    Inbox,
    InboxEvent,
    RecoveredLoaded,
    StepResult,
    SubtaskCapture,
    SubtaskHost,
    SubtaskRestore,
    Triggered,
)
from penstock.worker.partitioner import OutputPorts
from penstock.worker.payloads import concat, measure
from penstock.worker.sink_task import SinkTask
from penstock.worker.slicing import TARGET_MS, Slices, sizer_for
from penstock.worker.source_task import SourceTask
from penstock.worker.wiring import build_checkpoints, build_gate, build_outputs, open_state

REPORT_EVERY_MS = 100.0
NOTHING = SubtaskRestore({}, (), (), {}, {}, 0)


class Subtask:
    """One parallel instance of a vertex. The constructor opens and restores operators, reader and sink writer.

    Args:
        vertex: the vertex to run.
        graph: the whole job.
        subtask: id of the instance; ``subtask.vertex == vertex.id``.
        generation: part of buffer identities.
        options: window, budget and flush interval.
        host: executes the subtask's requests; the constructor may already call it.
        restore: state to start from; None at the first start.
        sink_context: for the sink writer; needed if the vertex has a sink.
        clock: seconds on a monotonic clock, to measure durations; virtual in the simulator.

    Attributes:
        inbox: queue into which the host puts events, from any thread.
        report: newest metrics. Any thread may read it; the owner thread replaces it as a whole.
        finished: True if all input has ended. Only barriers are forwarded from then on.
        stopped: any thread may set it if the result of a running step is no longer needed. A long step then raises
            ``Abandoned``.
        captured: newest checkpoint of which all barriers have arrived and left and whose capture was passed to the
            host.
        gate, outputs: belong to the owner thread; other threads may read them only while no step runs.

    Raises:
        FunctionError: user code failed while it was opened.
    """

    def __init__(
        self,
        vertex: Vertex,
        graph: JobGraph,
        subtask: SubtaskId,
        generation: GenerationId,
        options: Options,
        host: SubtaskHost,
        restore: SubtaskRestore | None = None,
        sink_context: SinkContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        restore = restore or NOTHING
        self.subtask = subtask
        self.inbox: Inbox[InboxEvent] = Inbox()
        self._host = host
        self._clock = clock
        self._now_ms = 0.0
        recovered = RecoveredRows(restore.inflight, measure, graph.max_parallelism)
        self.gate = build_gate(graph, subtask, generation, options, restore.channel_watermarks, recovered)
        self.outputs = build_outputs(graph, subtask, generation, options)
        self._checkpoints = build_checkpoints(subtask, self.gate, self.outputs, options, host.allow_capture)
        self._input_numbers = {edge.id: number for number, edge in enumerate(graph.inputs(vertex.id))}
        self._ports = OutputPorts(graph, subtask, self.outputs)
        self._isolation = options.function_isolation
        self._activity = Activity(clock)
        self._epoch_ends: dict[CheckpointId, EpochEnd] = {}
        self._source_ended = False
        self.finished = self.stopped = False
        self.captured: CheckpointId = 0
        self._work_ends_s = math.inf
        self._rows_in = restore.rows_in
        self._rows_out = 0
        self._report_at: float | None = None
        self._source_task: SourceTask | None = None
        with ExitStack() as closing:
            backend = open_state(vertex, graph, options, closing)
            self._chain = self._open_chain(vertex, graph, restore, backend, closing)
            writer = self._open_writer(vertex, sink_context, closing)
            self._closing = closing.pop_all()
        self._slices = Slices(self._chain, sizer_for(vertex.operators, self.outputs.step_bytes), self.outputs, clock)
        self._sink_task = SinkTask(writer, restore.pending_messages, restore.inherited_messages)
        self.report = self._measure()

    def step(self, now_ms: float, take_input: bool = True, within_ms: float = math.inf) -> StepResult:
        """Handle all events in the inbox, then process input for about 20 ms. Never blocks.

        Args:
            now_ms: wall-clock time in milliseconds, also the base of timers and ``StepResult.wake_at_ms``.
            take_input: False to handle only control: barriers, credit and output that may leave.
            within_ms: time limit of the work in milliseconds. It is exceeded if single rows take longer.

        Raises:
            FunctionError: user code raised an exception; ``position`` is the position of the input.
            Abandoned: see ``stopped``.
            ProtocolViolation: a bug in Penstock. After any exception the subtask can only be closed.
        """
        self._now_ms = now_ms
        self._work_ends_s = math.inf if within_ms == math.inf else self._clock() + within_ms / 1000
        self._activity.step_begins()
        controlled = self._control()
        if self._checkpoints.active:
            self._run(self._checkpoints.turn_timed_out(self._clock_ms()))
        worked = take_input and self._work()
        rose = self._release()
        busy = controlled or worked or rose
        self._activity.step_ends(busy, self.outputs.has_room, self._chain.has_pending_rows)
        self._refresh_report(busy)
        return StepResult(busy or len(self.inbox) > 0, None if busy else self._wake_at_ms())

    def close(self) -> None:
        """Close operators, reader and writer, each once, even if one of them fails. The last failure is raised."""
        self._closing.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a state machine of this subtask is inconsistent."""
        self.gate.check_invariants()
        self.gate.recovered.check_invariants()
        self.outputs.check_invariants()
        self._checkpoints.check_invariants()
        assert set(self._epoch_ends) <= set(self._checkpoints.active), "a dead checkpoint holds state"

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open_chain(
        self,
        vertex: Vertex,
        graph: JobGraph,
        restore: SubtaskRestore,
        backend: StateBackend,
        closing: ExitStack,
    ) -> Chain:
        index = self.subtask.index

        def context(operator_id: str) -> OperatorContext:
            shape = graph.parallelism, graph.max_parallelism
            return OperatorContext(operator_id, index, *shape, backend, self._put, lambda: int(self._now_ms))

        operators = vertex.operators
        if self._isolation is Isolation.PROCESS:
            operators = isolated(operators, lambda: self.inbox.wake())
        stages = open_stages(operators, context, restore.operators, closing)
        if vertex.source is not None:
            reader = vertex.source.source.create_reader()
            closing.callback(reader.close)
            reader.open(index, graph.parallelism)
            self._source_task = SourceTask(reader, restore.splits, self.subtask, self._host)
        chain = Chain(stages, self._emit, self.outputs.watermark, lambda: self._activity.abandon_if(self.stopped))
        if self.gate.watermark_us is not None:
            chain.watermark(self.gate.watermark_us)
        if self._source_task is not None and self._source_task.one_by_one:
            chain.hold_watermark(True)
        return chain

    def _open_writer(self, vertex: Vertex, context: SinkContext | None, closing: ExitStack) -> SinkWriter | None:
        if vertex.sink is None:
            return None
        if context is None:
            raise ProtocolViolation(f"subtask {self.subtask}", "opening", "a sink without a SinkContext")
        writer = vertex.sink.sink.create_writer()
        closing.callback(writer.close)
        writer.open(context)
        return writer

    # -- control ------------------------------------------------------------------------------------------------------

    def _control(self) -> bool:
        handled = False
        while (event := self.inbox.pop()) is not None:
            self._handle(event)
            handled = True
        return handled

    def _handle(self, event: InboxEvent) -> None:
        match event:
            case Arrived(channel, element, received_s):
                self.gate.arrive(channel, element)
                if self._checkpoints.active or isinstance(element, Barrier):
                    self._run(self._checkpoints.arrived(channel, element, self._since_ms(received_s)))
            case Granted(channel, credit):
                self.outputs.grant(channel, credit)
            case Triggered(message, received_s):
                if message.alignment is Alignment.ALIGNED:
                    self._chain.finish_advancing()
                barrier = Barrier(message.checkpoint, message.alignment, message.remaining_ms)
                self._run(self._checkpoints.triggered(barrier, self._since_ms(received_s)))
            case NotifyCheckpointComplete(checkpoint, committed_epoch):
                self._sink_task.committed(committed_epoch)
                if self._source_task is not None:
                    self._source_task.completed(checkpoint)
            case AbortCheckpoint(checkpoint):
                self._checkpoints.abort(checkpoint)
                self._drop(checkpoint)
                if self._source_task is not None:
                    self._source_task.aborted(checkpoint)
            case AssignSplits(splits=splits):
                self._source().assigned(splits)
            case PollAgain(_, number):
                self._source().poll_again(number)
            case FreezeReaders():
                self._source().freeze()
            case PauseReaders(_, paused):
                self._source().pause(paused)
            case SourceIdle(watermark_us=watermark_us) | AdvanceWatermark(watermark_us=watermark_us):
                self._may_rise(watermark_us)
            case NoMoreSplits():
                self._source_ended = True
            case RecoveredLoaded(entry, batches, reached):
                self.gate.loaded(entry, batches, reached)  # type: ignore[arg-type]
            case _:
                assert_never(event)

    def _may_rise(self, watermark_us: int | None) -> None:
        source_task = self._source()
        if watermark_us is None or self.finished:
            return
        if watermark_us == END_OF_TIME_US:
            source_task.drain()
            self._chain.advance_generated(watermark_us)
            return
        announced_us = self._chain.generated_watermark()
        if announced_us is None or announced_us < watermark_us:
            source_task.may_rise(watermark_us)
            self._rise(source_task)

    def _rise(self, source_task: SourceTask) -> None:
        """Raise event time as far as the read and processed rows allow."""
        while self._chain.is_settled and (risen_us := source_task.risen()) is not None:
            self._chain.advance_generated(risen_us)

    def _run(self, commands: Sequence[Command]) -> None:
        if not commands:
            return
        waiting = deque(commands)
        while waiting:
            command = waiting.popleft()
            match command:
                case EndEpoch(barrier):
                    waiting.extend(self._end_epoch(barrier))
                case Record(checkpoint, inflight):
                    self._host.recorded(self.subtask, checkpoint, inflight)
                case CaptureReady():
                    self._hand_over(command)
                case Declined(checkpoint, reason):
                    self._drop(checkpoint)
                    self._host.declined(self.subtask, checkpoint, reason)
                case _:
                    assert_never(command)

    def _finish_epoch(self, alignment: Alignment, strict: bool = True) -> None:
        """Process everything that belongs before the barrier; see ``Chain.finish_epoch``."""
        is_aligned = alignment is Alignment.ALIGNED
        with self._slices.worked_on() if self._chain.has_pending_rows else nullcontext():
            self._chain.finish_epoch(is_aligned, strict)

    def _end_epoch(self, barrier: Barrier) -> Sequence[Command]:
        """Send everything that belongs before the barrier, capture the state, then queue the barrier."""
        began = self._clock()
        self._finish_epoch(barrier.alignment, barrier.remaining_ms is None)
        operators = self._chain.snapshot()
        self._sink_task.end_epoch(barrier.checkpoint, self._chain.take_replaced())
        commands = self._checkpoints.ended(barrier)
        self._epoch_ends[barrier.checkpoint] = EpochEnd(
            operators,
            self._source_task.end_epoch(barrier.checkpoint) if self._source_task is not None else (),
            self.gate.recovered.carried(),
            {id_: us for id_, c in self.gate.channels.items() if (us := self.gate.watermark_of(c)) is not None},
            self._rows_in,
            (self._clock() - began) * 1000,
            self.gate.recovered.rows_read,
        )
        return commands

    def _hand_over(self, ready: CaptureReady) -> None:
        checkpoint = ready.checkpoint
        end = self._epoch_ends.pop(checkpoint)
        self.captured = max(checkpoint, self.captured)
        metrics = CaptureMetrics(
            self.subtask.vertex,
            self.subtask.index,
            start_delay_ms=ready.start_delay_ms,
            alignment_ms=ready.last_barrier_ms - ready.first_barrier_ms,
            sync_ms=end.sync_ms,
            unaligned=ready.unaligned,
            inflight_processed_bytes=ready.processed_bytes,
        )
        self.report = self._measure()  # before the driver can learn that the epoch is durable
        self._host.captured(
            SubtaskCapture(
                self.subtask,
                checkpoint,
                end.operators,
                end.splits,
                ready.inflight,
                end.carried,
                end.channel_watermarks,
                self._sink_task.pending_until(checkpoint),
                end.rows_in,
                metrics,
                self._sink_task.inherited,
                end.recovered_rows_read,
            )
        )

    def _drop(self, checkpoint: CheckpointId) -> None:
        """Drop the captured state of a checkpoint that was aborted or declined."""
        end = self._epoch_ends.pop(checkpoint, None)
        if end is not None:
            self._host.dropped(list(end.operators.values()))

    # -- work ---------------------------------------------------------------------------------------------------------

    def _work(self) -> bool:
        """Process watermarks and input until the time is up, there is no room, or an event has arrived."""
        deadline = min(self._clock() + TARGET_MS / 1000, self._work_ends_s)
        worked = False
        while self.outputs.has_room:
            if self._chain.has_pending_rows:
                joined = self._slices.may_grow and self._chain.accepts_more(self._now_ms) and self._consume()
                if not (self._slices.collect() or joined):
                    break
            elif self._chain.advancing:
                self._chain.advance()
            elif not (self._consume() | self._chain.begin_timed(self._now_ms)):
                break
            worked = True
            self._pump()
            if len(self.inbox) or self._clock() >= deadline:
                break
        return worked

    def _consume(self) -> bool:
        if self._source_task is not None:
            return self._read_source(self._source_task)
        gathered, control = self._slices.take_from(self.gate, self._work_ends_s)
        for edge, ranges in gathered.items():
            self._process(self._input_numbers[edge], ranges)
        match control:
            case None:
                return bool(gathered)
            case WatermarkRose():
                self._chain.watermark(control.timestamp_us)
            case BarrierReached(channel, barrier):
                self._run(self._checkpoints.reached(channel, barrier, self._clock_ms()))
            case ChannelEnded():
                risen = self.gate.risen()
                if risen is not None:
                    self._chain.watermark(risen.timestamp_us)
            case _:
                assert_never(control)
        return True

    def _read_source(self, source_task: SourceTask) -> bool:
        position = source_task.position
        max_rows, max_bytes = self._slices.limits(self._work_ends_s)
        batch = source_task.poll(max_rows, self._now_ms, max_bytes)
        if batch is None:
            return False
        self._push(0, batch, position, position)
        return True

    def _process(self, number: int, ranges: Sequence[RowRange]) -> None:
        first, last = ranges[0], ranges[-1]
        batch = first.payload if first is last else concat([r.payload for r in ranges])
        self._push(number, batch, first.position, last.position)

    def _push(self, number: int, batch: pa.RecordBatch, first: str, last: str) -> None:
        self._slices.process(batch, number, first, last)
        self._rows_in += batch.num_rows

    def _end_of_input(self) -> None:
        """Send everything that operators still keep, then the end. Barriers are still forwarded."""
        self._finish_epoch(Alignment.ALIGNED)
        self._chain.stop_clock()
        self.outputs.end()
        self.finished = True
        self._host.finished(self.subtask)

    def _input_ended(self) -> bool:
        if self._source_task is not None:
            return self._source_ended and self._source_task.finished and not self._source_task.rises
        return self.gate.ended

    def _emit(self, batch: pa.RecordBatch) -> None:
        self._rows_out += batch.num_rows
        self._sink_task.write(batch)
        self._put("", batch)

    def _put(self, port: str, batch: pa.RecordBatch) -> None:
        self._ports.put(port, batch, self._now_ms)

    # -- output -------------------------------------------------------------------------------------------------------

    def _release(self) -> bool:
        """Send everything that may be sent now. Return True if that made more work due."""
        made_due = False
        if not self.finished and self._chain.is_settled and self._input_ended():
            self._end_of_input()
        self._pump()
        if self.gate.is_recovering:
            for entry in self.gate.recovered.to_load():
                self._host.load(self.subtask, entry)
        if self._source_task is not None and self._chain.is_settled:
            if self._source_task.caught_up:
                self._chain.hold_watermark(False)
            if self._chain.holds_rows and self._source_task.releases(self._now_ms):
                with self._slices.worked_on():
                    self._chain.release_rows()
                self._pump()
            self._rise(self._source_task)
            made_due = self._chain.advancing
            if self._chain.is_settled:
                watermarks = self._chain.reached_watermark(), self._chain.generated_watermark()
                self._source_task.report(*watermarks, self._chain.holds_rows)
        return made_due

    def _pump(self) -> None:
        for channel, element in self.outputs.pump(self._now_ms):
            if isinstance(element, Barrier):
                element = self._checkpoints.leaving(element, self._clock_ms())
            self._host.send(channel, element)
        for channel, credit in self.gate.take_grants():
            self._host.grant(channel, credit)
        if self._checkpoints.active:
            self._run(self._checkpoints.ready())

    def _wake_at_ms(self) -> float | None:
        """Return when the next step has work.

        Rows in another process and credit wake the subtask themselves, so work that waits for them has no time here. A
        time in the past would cause endless steps.
        """
        source_task = self._source_task
        deadline_ms = self._checkpoints.deadline_ms() if self._checkpoints.active else None
        turn_at = None if deadline_ms is None else self._now_ms + max(0.0, deadline_ms - self._clock_ms())
        due = [self.outputs.flush_at_ms(), turn_at]
        if source_task is not None and self._chain.is_settled:
            due.append(source_task.release_at_ms)
        if self.outputs.has_room and not self._chain.has_pending_rows:
            due += [self._chain.wake_at_ms(), None if source_task is None else source_task.wake_at_ms]
        return min((at for at in due if at is not None), default=None)

    def _source(self) -> SourceTask:
        if self._source_task is None:
            raise ProtocolViolation(f"subtask {self.subtask}", "no source", "splits")
        return self._source_task

    def _clock_ms(self) -> float:
        return self._clock() * 1000

    def _since_ms(self, received_s: float | None) -> float:
        """Return when an event was received, on this subtask's clock. The event may have waited for a step since."""
        return self._clock_ms() if received_s is None else received_s * 1000

    # -- metrics ------------------------------------------------------------------------------------------------------

    def _refresh_report(self, busy: bool) -> None:
        now = self._clock_ms()
        if self._report_at is None or not busy or now - self._report_at >= REPORT_EVERY_MS:
            self._report_at = now
            self.report = self._measure()

    def _measure(self) -> SubtaskReport:
        watermark = self._chain.generated_watermark()
        return SubtaskReport(
            vertex=self.subtask.vertex,
            index=self.subtask.index,
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            busy_ms=self._activity.busy_ms,
            backpressured_ms=self._activity.backpressured_ms,
            idle_ms=self._activity.idle_ms,
            input_queued_bytes=self.gate.queued_bytes,
            output_queued_bytes=self.outputs.queued_bytes,
            recovered_rows_left=self.gate.recovered.rows_left if self.gate.is_recovering else 0,
            watermark_us=self.gate.watermark_us if watermark is None else watermark,
            counters=self._chain.counters(),
            backlog=None if self._source_task is None else self._source_task.backlog(),
        )
