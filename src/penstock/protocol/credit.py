"""Credit: how many bytes a consumer allows each of its channels to send.

Both ends of a channel compute the same exclusive window from the graph and the options, so nothing is granted at the
start. Everything beyond it is granted explicitly. A buffer's cost is fixed by its producer and travels with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.model.elements import Payload


@dataclass(frozen=True)
class Payloads:
    """What the protocol must know about payloads without knowing what they are.

    Attributes:
        measure: bytes of a payload, at least 1.
        concat: one payload with the rows of all, in order.
    """

    measure: Callable[[Payload], int]
    concat: Callable[[Sequence[Payload]], Payload]


def channel_window(exclusive_window: int, memory_per_gate: int, channels: int) -> int:
    """The exclusive window of each channel of a gate: at most half of the gate's budget goes into windows.

    The other half is the floating pool and, during recovery, the loader's.
    """
    return max(1, min(exclusive_window, memory_per_gate // (2 * max(1, channels))))


def cut(payload: Payload, window: int, measure: Callable[[Payload], int]) -> Iterator[tuple[Payload, int]]:
    """Pieces with their costs, each at most ``window`` bytes or a single row (which then travels alone)."""
    cost = measure(payload)
    rows = payload.num_rows
    if cost <= window or rows <= 1:
        yield payload, cost
        return
    pieces = min(rows, -(-cost // window))
    size = -(-rows // pieces)
    if size == rows:
        size = rows - rows // 2
    for start in range(0, rows, size):
        yield from cut(payload.slice(start, min(size, rows - start)), window, measure)
