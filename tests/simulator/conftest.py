"""Worker processes shared by the tests of the simulator, and all schedules that are known to pass, run once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulator.workers import Workers, cores


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    with Workers(min(cores(), 4), limit_s=60) as started:
        yield started
