"""Bottleneck detection: derive the slow operator of a query from the places where in-flight rows are queued. Pure.

Backpressure fills the channels in front of the slow operator, then those in front of its producers, and so on up to the
sources. Channels downstream of the slow operator are empty. So the bottleneck is the operator with a full input and no
full input downstream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

QUEUED_BYTES = 64 << 10
"""Bytes per subtask below which an input does not count as queued. A query that keeps up has as much in flight."""
FULL_FRACTION = 1 / 8
"""Fraction of the fullest input below which an input does not count as full."""
SKEW_FACTOR = 1.4
"""Multiple of the mean over all subtasks. A subtask with at least this many bytes counts as skewed."""


class InputLoad(msgspec.Struct, frozen=True):
    """Bytes in flight in front of one vertex, in total and by subtask."""

    vertex: int
    outputs: Sequence[int]
    bytes: int
    subtask_bytes: Mapping[int, int]


class Bottleneck(msgspec.Struct, frozen=True):
    """Slow vertex of a query.

    Attributes:
        bytes: in-flight bytes in front of the vertex.
        subtask: subtask with the most in-flight bytes if they are skewed; otherwise -1.
        share: fraction of ``bytes`` in front of ``subtask``; 0 if they are not skewed.
    """

    vertex: int
    bytes: int
    subtask: int
    share: float


def find_bottleneck(loads: Sequence[InputLoad], parallelism: int) -> Bottleneck | None:
    """Return the vertex that the query waits for; None if there is none.

    Of several independent bottlenecks in parallel branches, return the one with the most bytes in front of it.

    Args:
        loads: one load per vertex; ``outputs`` are the direct consumers of the vertex.
    """
    by_vertex = {load.vertex: load for load in loads}
    fullest = max((load.bytes for load in loads), default=0)
    full = {
        load.vertex for load in loads if load.bytes >= max(QUEUED_BYTES * max(parallelism, 1), fullest * FULL_FRACTION)
    }
    slow = [by_vertex[vertex] for vertex in sorted(full) if not full & set(_downstream(vertex, by_vertex))]
    if not slow:
        return None
    load = max(slow, key=lambda load: load.bytes)
    subtask, subtask_bytes = max(load.subtask_bytes.items(), key=lambda item: item[1])
    if subtask_bytes * parallelism < SKEW_FACTOR * load.bytes:
        return Bottleneck(load.vertex, load.bytes, -1, 0.0)
    return Bottleneck(load.vertex, load.bytes, subtask, subtask_bytes / load.bytes)


def _downstream(vertex: int, loads: Mapping[int, InputLoad]) -> list[int]:
    """Return every vertex downstream of this one."""
    reached = [*loads[vertex].outputs]
    for one in reached:
        reached += [output for output in (loads[one].outputs if one in loads else ()) if output not in reached]
    return reached
