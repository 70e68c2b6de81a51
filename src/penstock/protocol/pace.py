"""Measured speed of a stream of bytes, the base of every limit that is given as a time.

Count only time in which bytes could have passed. Otherwise waiting for input would look like low speed.
"""

from __future__ import annotations


class Pace:
    """Average speed in bytes per millisecond over about the last ``span_ms``.

    Args:
        span_ms: time over which past observations count, in milliseconds.
        by_work: old observations also fade with new work, by the time that this work would have taken at the old speed.
            A sudden rise in speed then shows after a few spans' worth of bytes instead of after a few spans of time. Do
            not use it for a stream that comes in bursts, because each burst would look like a rise.
    """

    def __init__(self, span_ms: float, by_work: bool) -> None:
        self._span_ms = span_ms
        self._by_work = by_work
        self._bytes = 0.0
        self._ms = 0.0

    def observe(self, passed_bytes: float, elapsed_ms: float) -> None:
        """Record that ``passed_bytes`` passed in ``elapsed_ms``. Both may be 0."""
        fading_ms = elapsed_ms
        if self._by_work and self._bytes:
            fading_ms = max(fading_ms, passed_bytes * self._ms / self._bytes)
        kept = self._span_ms / (self._span_ms + fading_ms)
        self._bytes = self._bytes * kept + passed_bytes
        self._ms = self._ms * kept + elapsed_ms

    def within(self, span_ms: float, most: int) -> int | None:
        """Return the bytes that pass in ``span_ms``, at most ``most``. Return None while nothing was observed."""
        if self._bytes * span_ms >= most * self._ms:  # also covers bytes without time
            return most if self._bytes else None
        return int(self._bytes * span_ms / self._ms)
