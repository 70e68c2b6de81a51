"""Which operator a query waits for, told by where the rows in flight lie; pure.

Backpressure fills the channels in front of the slow operator, then those in front of the operator before it, and so on
up to the sources; behind the slow one they are empty. So it is the one with a full input behind which no input is full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

STANDING_BYTES = 64 << 10
"""An input with less than this per subtask is no queue that stands: so much is on its way in a query that keeps up."""
LITTLE = 1 / 8
"""An input that holds less than this part of the fullest one is not full."""
UNEVEN = 1.4
"""A subtask that holds less than this multiple of the mean over all subtasks holds no more than its share."""


class InputLoad(msgspec.Struct, frozen=True):
    """What waits in front of one vertex; ``subtask_bytes``: by subtask."""

    vertex: int
    outputs: Sequence[int]
    bytes: int
    subtask_bytes: Mapping[int, int]


class Bottleneck(msgspec.Struct, frozen=True):
    """``share``: the part of the vertex's in-flight bytes that waits at ``subtask``, the one with most; -1 and 0 if it
    has no more than the others."""

    vertex: int
    bytes: int
    subtask: int
    share: float


def find_bottleneck(loads: Sequence[InputLoad], parallelism: int) -> Bottleneck | None:
    """The vertex that everything waits for, or None if nothing does.

    Of several that wait for nobody (in branches beside each other), the one with most in front of it.

    Args:
        loads: of every vertex; ``outputs`` are the vertices behind it.
    """
    by_vertex = {load.vertex: load for load in loads}
    fullest = max((load.bytes for load in loads), default=0)
    full = {load.vertex for load in loads if load.bytes >= max(STANDING_BYTES * max(parallelism, 1), fullest * LITTLE)}
    slow = [by_vertex[vertex] for vertex in sorted(full) if not full & set(_behind(vertex, by_vertex))]
    if not slow:
        return None
    load = max(slow, key=lambda load: load.bytes)
    subtask, held = max(load.subtask_bytes.items(), key=lambda item: item[1])
    if held * parallelism < UNEVEN * load.bytes:
        return Bottleneck(load.vertex, load.bytes, -1, 0.0)
    return Bottleneck(load.vertex, load.bytes, subtask, held / load.bytes)


def _behind(vertex: int, loads: Mapping[int, InputLoad]) -> list[int]:
    """Every vertex that what this one yields can reach."""
    reached = [*loads[vertex].outputs]
    for here in reached:
        reached += [output for output in (loads[here].outputs if here in loads else ()) if output not in reached]
    return reached
