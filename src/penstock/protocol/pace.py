"""Speed of a stream of bytes, as measured: the base of every limit that is given in time.

Only time in which bytes could have passed may be counted. Otherwise waiting for work would look like being slow.
"""

from __future__ import annotations


class Pace:
    """An average of bytes per millisecond over about the last ``span_ms``.

    Args:
        span_ms: how long the past counts.
        by_work: it also fades with work, by the time that this work used to take: something that becomes much faster is
            believed after as many bytes as went by in a few spans before, not after a few spans at the new speed. Not
            for what comes in bursts: each would be believed.
    """

    def __init__(self, span_ms: float, by_work: bool) -> None:
        self._span_ms = span_ms
        self._by_work = by_work
        self._bytes = 0.0
        self._ms = 0.0

    def observe(self, passed_bytes: float, elapsed_ms: float) -> None:
        """Note that ``passed_bytes`` passed in ``elapsed_ms``; both may be 0."""
        fading_ms = elapsed_ms
        if self._by_work and self._bytes:
            fading_ms = max(fading_ms, passed_bytes * self._ms / self._bytes)
        kept = self._span_ms / (self._span_ms + fading_ms)
        self._bytes = self._bytes * kept + passed_bytes
        self._ms = self._ms * kept + elapsed_ms

    def within(self, span_ms: float, most: int) -> int | None:
        """Return the bytes that pass in ``span_ms``, at most ``most``; None while nothing was observed."""
        if self._bytes * span_ms >= most * self._ms:  # also: bytes, but no time
            return most if self._bytes else None
        return int(self._bytes * span_ms / self._ms)
