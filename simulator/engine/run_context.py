"""Context of one run: virtual time, seeded random choices, and the trace. Nothing else in the simulation is random."""

from __future__ import annotations

import random
from collections import deque
from hashlib import blake2b

STORY_LINES = 4_000
START_MS = 1_000_000.0
"""When everything begins: no time is zero by chance."""
PAUSE_MS = 25.0
"""Longer than a subtask's step is meant to take: now and then the operating system takes a processor away."""


class RunContext:
    """Virtual clock, random generator and trace of one seed.

    It replays exactly: no set is iterated and nothing is hashed with ``hash``.

    Attributes:
        now_ms: virtual time, the same for all actors.
        spent_ms: time that the current action has taken so far on its own processor.
        steps: number of actions so far.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.spent_ms = 0.0
        self.steps = 0
        self._digest = blake2b(digest_size=8)
        self._story: deque[tuple[int, float, str]] = deque(maxlen=STORY_LINES)

    def begin_action(self, name: str) -> None:
        """Begin an action and add it to the trace."""
        self.steps += 1
        self.spent_ms = 0.0
        self.note(name)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._digest.update(text.encode())
        self._story.append((self.steps, self.now_ms, text))

    def clock_s(self) -> float:
        """Return the time of a monotonic clock. Each reading takes 0.01 ms, and 1 in 100 takes a whole step."""
        self.spent_ms += PAUSE_MS if self.random.random() < 0.01 else 0.01
        return (self.now_ms + self.spent_ms) / 1000

    def token(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    @property
    def story(self) -> list[str]:
        """Return the last lines of the trace: step, time and event."""
        return [f"{step} {now_ms:.3f} {text}" for step, now_ms, text in self._story]

    @property
    def digest(self) -> str:
        """Return the fingerprint of the trace; equal runs have equal ones."""
        return f"{self._digest.hexdigest()}-{self.now_ms:.3f}"
