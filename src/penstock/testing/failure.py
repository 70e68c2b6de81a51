"""What the simulator raises when it has found something."""

from __future__ import annotations


class SimulationFailure(AssertionError):
    """The simulated job did something that it must never do. ``oracle``: what noticed it."""

    def __init__(self, message: str, oracle: str) -> None:
        super().__init__(f"{oracle}: {message}")
        self.oracle = oracle
