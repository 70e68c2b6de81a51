"""The rows of one slice: of several buffers where one is not enough, as operators cost per call what they cost."""

from __future__ import annotations

from penstock.protocol.gate import UNLIMITED, BarrierReached, ChannelEnded, InputGate, WatermarkRose
from penstock.protocol.input import RowRange

Behind = WatermarkRose | BarrierReached | ChannelEnded
"""What came behind the rows, and is to be heeded once they are processed."""


def gather(
    gate: InputGate, max_rows: int, now_ms: float, max_bytes: int = UNLIMITED
) -> tuple[dict[int, list[RowRange]], Behind | None]:
    """At most ``max_rows`` rows by edge, in the order of each channel, and what came behind them all.

    No further buffer is begun once the rows have ``max_bytes``.

    A watermark is true of whatever follows it, so it may always come later: the last one that rises among the rows
    comes behind them. Barriers and ends do not pass it.
    """
    ranges: dict[int, list[RowRange]] = {}
    risen: WatermarkRose | None = None
    left, full = max_rows, gate.taken_bytes + max_bytes
    while left > 0 and gate.taken_bytes < full:
        consumed = gate.poll(left, now_ms, watermark_due=risen is not None)
        match consumed:
            case RowRange():
                ranges.setdefault(consumed.channel.edge, []).append(consumed)
                left -= consumed.rows
            case WatermarkRose():
                risen = consumed
            case _:
                return ranges, risen or consumed
    return ranges, risen
