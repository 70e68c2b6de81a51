"""Construction of the channels and state of one subtask from the job graph and the options."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from penstock.config import Options, TriggerOn
from penstock.model.ids import ChannelId, GenerationId, SubtaskId
from penstock.model.job_graph import JobGraph, Vertex
from penstock.protocol.alignment import PART_BYTES, Allowance, SubtaskCheckpoints
from penstock.protocol.credit import channel_window
from penstock.protocol.gate import InputGate
from penstock.protocol.input import InputChannel
from penstock.protocol.output import OutputChannel, Outputs
from penstock.protocol.recovered import RecoveredRows
from penstock.state.backends import open_backend
from penstock.state.table import NoState, StateBackend
from penstock.worker.payloads import ARROW

TARGET_WINDOW = 128 << 10
"""Maximum window in bytes with ``inflight_target_ms``.

So many bytes may be sent to a slow consumer before its speed is known, and again after its queue was empty. A fast
consumer gets most of its data by floating credit. However, buffers are cut to the window: an exchange of rows of 16
bytes costs 5 % more processor time than with 1 MiB, and 25 % more at half of this window.
"""

OUTPUT_SHARE = 4
"""Divisor: a subtask's output queues may hold this part of a gate's budget, plus the rows of one step."""


LEAST_GATE_MEMORY = 32 << 10
"""Smallest budget of a gate in bytes with ``checkpoint.maxInflightBytes``. With less, rows would move one by one."""


def gate_memory(graph: JobGraph, options: Options) -> int:
    """Return the budget of each input gate in bytes.

    With ``checkpoint.maxInflightBytes`` the gates and output queues of a slot together have about that many bytes. So a
    checkpoint that overtakes everything in them stays within the limit.
    """
    limit = options.checkpoint_max_inflight_bytes
    gates = sum(bool(graph.inputs(vertex.id)) for vertex in graph.vertices)
    if limit is None or not gates:
        return options.memory_per_gate
    return min(options.memory_per_gate, max(LEAST_GATE_MEMORY, limit // (2 * gates)))


def window_into(graph: JobGraph, vertex: int, options: Options) -> int:
    """Return the exclusive window of every channel into a vertex in bytes. Producer and consumer compute the same."""
    channels = sum(len(edge.producers(0, graph.parallelism)) for edge in graph.inputs(vertex))
    most = options.exclusive_window
    if options.inflight_target_ms is not None:
        most = min(most, TARGET_WINDOW)
    return channel_window(most, gate_memory(graph, options), channels)


def output_limit(graph: JobGraph, options: Options) -> int:
    """Return the number of queued output bytes from which a subtask takes no more input."""
    return max(1, gate_memory(graph, options) // OUTPUT_SHARE)


def build_outputs(graph: JobGraph, subtask: SubtaskId, generation: GenerationId, options: Options) -> Outputs:
    """Return the output channels of a subtask, ordered by edge, then consumer."""
    channels = [
        OutputChannel(
            ChannelId(edge.id, subtask.index, consumer),
            generation,
            window_into(graph, edge.consumer, options),
            options.flush_interval_ms,
            ARROW,
        )
        for edge in graph.outputs(subtask.vertex)
        for consumer in edge.consumers(subtask.index, graph.parallelism)
    ]
    return Outputs(channels, output_limit(graph, options), options.inflight_target_ms)


def build_gate(
    graph: JobGraph,
    subtask: SubtaskId,
    generation: GenerationId,
    options: Options,
    watermarks: Mapping[ChannelId, int],
    recovered: RecoveredRows,
) -> InputGate:
    """Return the input gate of a subtask: channels by edge, then producer, at their restored watermarks."""
    window = window_into(graph, subtask.vertex, options)
    identities = [
        ChannelId(edge.id, producer, subtask.index)
        for edge in graph.inputs(subtask.vertex)
        for producer in edge.producers(subtask.index, graph.parallelism)
    ]
    channels = [InputChannel(channel, generation, window, watermarks.get(channel)) for channel in identities]
    subject = f"gate {subtask}"
    untimed = {edge.id for edge in graph.inputs(subtask.vertex) if not edge.timed}
    memory = gate_memory(graph, options)
    return InputGate(subject, channels, memory, window, recovered, options.inflight_target_ms, untimed)


def build_checkpoints(
    subtask: SubtaskId, gate: InputGate, outputs: Outputs, options: Options, allow: Allowance
) -> SubtaskCheckpoints:
    """Return the checkpoint state machine of a subtask. ``allow`` is used only with ``checkpoint.maxInflightBytes``."""
    return SubtaskCheckpoints(
        f"checkpoints {subtask}",
        gate,
        outputs,
        on_last=options.checkpoint_trigger_on is TriggerOn.LAST_BARRIER,
        part_bytes=max(1, min(PART_BYTES, options.checkpoint_capture_memory // 8)),
        allowance=None if options.checkpoint_max_inflight_bytes is None else allow,
    )


def open_state(vertex: Vertex, graph: JobGraph, options: Options, closing: ExitStack) -> StateBackend:
    """Open the state backend of one subtask of a vertex; ``closing`` closes it.

    The subtasks of a slot that have state share ``state_memory`` evenly.
    """
    if not _has_state(vertex):
        return NoState()
    backend = open_backend(options.state_backend, options.state_memory // sum(map(_has_state, graph.vertices)))
    closing.callback(backend.close)
    return backend


def _has_state(vertex: Vertex) -> bool:
    return any(spec.state_schemas for spec in vertex.operators)
