"""Virtual time and seeded choices. Nothing else in the simulation decides anything."""

from __future__ import annotations

import random
from collections import deque
from hashlib import blake2b

STORY_LINES = 4_000
START_MS = 1_000_000.0
"""When everything begins: no time is zero by chance."""
PAUSE_MS = 25.0
"""Longer than a subtask's step is meant to take: now and then the operating system takes a processor away."""


class Chance:
    """One seed's choices and its clock. Replays exactly: no set is iterated and nothing is hashed with ``hash``.

    Attributes:
        now_ms: virtual time, the same for everybody.
        spent_ms: what the action that is going on has taken so far, on its own processor.
        steps: actions so far.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.spent_ms = 0.0
        self.steps = 0
        self._digest = blake2b(digest_size=8)
        self._story: deque[tuple[int, float, str]] = deque(maxlen=STORY_LINES)

    def acts(self, name: str) -> None:
        """An action begins; it becomes part of the story."""
        self.steps += 1
        self.spent_ms = 0.0
        self.note(name)

    def note(self, text: str) -> None:
        """Add a line to the story."""
        self._digest.update(text.encode())
        self._story.append((self.steps, self.now_ms, text))

    def clock_s(self) -> float:
        """A monotonic clock on which every look costs something, and now and then a whole step."""
        self.spent_ms += PAUSE_MS if self.random.random() < 0.01 else 0.01
        return (self.now_ms + self.spent_ms) / 1000

    def token(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    @property
    def story(self) -> list[str]:
        """The last lines: step, time and what happened."""
        return [f"{step} {now_ms:.3f} {text}" for step, now_ms, text in self._story]

    @property
    def digest(self) -> str:
        """The story's fingerprint: equal for equal runs."""
        return f"{self._digest.hexdigest()}-{self.now_ms:.3f}"
