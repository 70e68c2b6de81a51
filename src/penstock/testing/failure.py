"""Error that the simulator raises when an oracle has found a failure."""

from __future__ import annotations


class SimulationFailure(AssertionError):
    """The simulated job did something that it must never do. ``oracle``: name of the oracle that found it."""

    def __init__(self, message: str, oracle: str) -> None:
        super().__init__(f"{oracle}: {message}")
        self.oracle = oracle
