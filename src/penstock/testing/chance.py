"""Virtual time and seeded choices. Nothing else in the simulation decides anything."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """Something that may happen next. ``name`` identifies it in the story of a run."""

    name: str
    weight: float
    run: Callable[[], None]


class Chance:
    """One seed's choices. Replays exactly: no set is iterated and nothing is hashed with ``hash``."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000_000.0
        self.steps = 0
        self._digest = hashlib.sha256()
        self.story: list[str] = []

    def pick(self, actions: Sequence[Action]) -> Action:
        """One of the actions, by weight; it becomes part of the story."""
        point = self.random.random() * sum(action.weight for action in actions)
        chosen = actions[-1]
        for action in actions:
            point -= action.weight
            if point < 0:
                chosen = action
                break
        self.note(chosen.name)
        self.steps += 1
        return chosen

    def note(self, text: str) -> None:
        """Add a line to the story."""
        line = f"{self.steps} {self.now_ms:.3f} {text}"
        self._digest.update(line.encode())
        self.story.append(line)
        if len(self.story) > 4_000:
            del self.story[:2_000]

    def clock_s(self) -> float:
        """A monotonic clock on which every look costs something between nothing and a whole step."""
        self.now_ms += 25.0 if self.random.random() < 0.04 else 0.02
        return self.now_ms / 1000

    def token(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    @property
    def digest(self) -> str:
        """The story's fingerprint: equal for equal runs."""
        return self._digest.hexdigest()[:16]
