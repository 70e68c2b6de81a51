"""Broken forward edges: channels that look as if nothing could happen to them within one slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.coordinator import command_executor
from penstock.model.ids import SubtaskId
from penstock.model.job_graph import EdgeKind, JobGraph
from penstock.model.manifest import InflightEntry, SnapshotMetadata
from penstock.protocol.output import OutputChannel
from penstock.worker import subtask as subtask_module
from simulator.mutants.mutation import mutant


def _to_the_next_subtask(original: Any) -> Any:
    def plan_restore(metadata: SnapshotMetadata, graph: JobGraph, *more: Any) -> Any:
        def moved(entry: InflightEntry) -> InflightEntry:
            if graph.edge(entry.edge).kind is not EdgeKind.FORWARD:
                return entry
            return msgspec.structs.replace(entry, consumer=(entry.consumer + 1) % graph.parallelism)

        slots = [
            msgspec.structs.replace(
                slot,
                subtasks=[
                    msgspec.structs.replace(subtask, inflight=[moved(entry) for entry in subtask.inflight])
                    for subtask in slot.subtasks
                ],
            )
            for slot in metadata.slots
        ]
        return original(msgspec.structs.replace(metadata, slots=slots), graph, *more)

    return plan_restore


def _with_forward_channels(change: Callable[[OutputChannel], None]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def build_outputs(graph: JobGraph, subtask: SubtaskId, *more: Any) -> Any:
            outputs = original(graph, subtask, *more)
            for identity, channel in outputs.channels.items():
                if graph.edge(identity.edge).kind is EdgeKind.FORWARD:
                    change(channel)
            return outputs

        return build_outputs

    return make


def _capture_nothing(channel: OutputChannel) -> None:
    overtake = channel.overtake

    def overtake_only(barrier: Any) -> list[Any]:
        overtake(barrier)
        return []

    channel.overtake = overtake_only  # type: ignore[method-assign]


FORWARD = {
    "forward-rows-restored-elsewhere": mutant(
        "rows that were in flight on a forward edge go on in the next subtask after a recovery",
        (command_executor, "plan_restore", _to_the_next_subtask),
    ),
    "forward-edge-not-captured": mutant(
        "what an unaligned barrier overtakes on a forward edge is not captured: it stays in its slot anyway",
        (subtask_module, "build_outputs", _with_forward_channels(_capture_nothing)),
    ),
}
