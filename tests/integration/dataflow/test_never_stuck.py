"""Under full backpressure a checkpoint completes soon, whatever else is asked for meanwhile."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.coordinator.view import CheckpointState, ExecutionView
from penstock.model.elements import Alignment
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import Running, finish, run
from tests.support.dataflow.tiny import CountSpec, Numbers, tiny_graph

WITHIN_S = 2.0
ROWS = 60_000


def newest_complete(view: ExecutionView) -> int:
    return max((c.checkpoint for c in view.checkpoints if c.state is CheckpointState.COMPLETE), default=0)


def completes_one_soon(query: Running) -> None:
    before, began = newest_complete(query.view), time.monotonic()
    query.until(lambda v: newest_complete(v) > before, what="a checkpoint")
    assert time.monotonic() - began < WITHIN_S


@pytest.mark.one_in(25)
@pytest.mark.parametrize("seed", range(50))
def test_a_strict_snapshot_an_in_flight_limit_and_a_rescale_keep_no_checkpoint_waiting(
    tmp_path: Path, launcher: ProcessLauncher, seed: int
) -> None:
    chance = random.Random(seed)
    before, after = chance.sample((1, 2, 3), 2)
    slow = tmp_path / "slow"
    slow.write_text(str(chance.choice((500, 1_000, 3_000))))
    limit = chance.choice((100_000, 300_000, 1_000_000))
    graph = tiny_graph(tmp_path / "out", before, Numbers(ROWS), CountSpec(slow_file=str(slow)))
    query = run(graph, tmp_path / "chk", launcher, Alignment.AUTO, checkpoint_max_inflight_bytes=limit)
    query.until(lambda v: v.inflight_bytes > before * limit / 5, what="full queues")
    query.execution.begin_snapshot("strict", Alignment.ALIGNED)
    with ThreadPoolExecutor(1) as pool:
        rescaled = pool.submit(query.execution.rescale, after, 30)
        completes_one_soon(query)
        rescaled.result()
    query.execution.begin_snapshot("strict", Alignment.ALIGNED)
    for _ in range(3):
        completes_one_soon(query)
    slow.unlink()
    finish(query, tmp_path / "out", ROWS)
