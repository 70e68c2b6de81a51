"""Chains of restores, alignments that change, failures inside calls: on real slot processes, with records that check
themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Backend
from penstock.model.elements import Alignment
from tests.scenarios.endings import finish, restored_rows
from tests.scenarios.injected import IN_OPERATORS, IN_SINKS, arm
from tests.scenarios.shapes import HASH_AND_REBALANCE, PIPELINE, UNION
from tests.scenarios.story import Story
from tests.support.dataflow.process_launcher import ProcessLauncher

pytestmark = pytest.mark.slow

NEVER_MS = 3_600_000
ALIGNED, UNALIGNED, AUTO = Alignment.ALIGNED, Alignment.UNALIGNED, Alignment.AUTO


def test_alignments_change_over_restarts(tmp_path: Path, launcher: ProcessLauncher) -> None:
    story = Story(PIPELINE, tmp_path, launcher, 2, ALIGNED)
    for parallelism, alignment in ((4, UNALIGNED), (1, ALIGNED), (2, AUTO)):
        story.until_commits()
        story.restart(parallelism, alignment)
        story.kill(0)
    finish(story)


def test_restored_captured_while_it_recovers_and_restored_at_another_parallelism_over_and_over(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    """Each rescale's snapshot is taken while what the last one restored still lies in the queues."""
    story = Story(PIPELINE, tmp_path, launcher, 2, slower=5)
    story.until_commits(2)
    for parallelism in (4, 1, 2, 4, 2):
        story.rescale(parallelism)
    story.kill(0)
    finish(story)
    assert restored_rows(story) > 0


def test_several_rescales_in_a_row_from_one_snapshot(tmp_path: Path, launcher: ProcessLauncher) -> None:
    """None of the Generations in between completes one: each begins where the first snapshot is."""
    story = Story(UNION, tmp_path, launcher, 2, slower=5)
    story.until_commits(2)
    for parallelism in (4, 1, 2):
        story.restart(parallelism, UNALIGNED, checkpoint_interval_ms=NEVER_MS)
        story.kill(0)
    story.restart(4, UNALIGNED, checkpoint_interval_ms=100)
    finish(story)
    assert len({restart.restored_from for restart in story.restarts}) == 1
    assert restored_rows(story) > 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("place", [*IN_OPERATORS, *IN_SINKS])
def test_a_failure_inside_a_call_is_recovered_from(tmp_path: Path, launcher: ProcessLauncher, place: str) -> None:
    """Some calls happen only when a Generation ends or begins: so one ends besides."""
    story = Story(HASH_AND_REBALANCE, tmp_path, launcher, 2)
    story.until_commits()
    marker = arm(story.markers, place)
    if place in ("open", "restore", "close"):
        story.rescale_while(4, lambda: None)
    story.query.until(lambda v: not marker.exists(), what=f"a failure in {place}")
    story.until_all_run()
    story.until_commits(2)
    finish(story)


def test_a_slot_dies_while_it_is_rescaled(tmp_path: Path, launcher: ProcessLauncher) -> None:
    story = Story(UNION, tmp_path, launcher, 2)
    story.until_commits()
    for parallelism in (4, 1, 2):
        pid = story.query.view.slots[0].pid
        story.rescale_while(parallelism, lambda pid=pid: story.kill_later(pid, 0.0))  # type: ignore[misc]
    finish(story)


def test_state_in_rocksdb_moves_with_its_keys(tmp_path: Path, launcher: ProcessLauncher) -> None:
    pytest.importorskip("rocksdict")
    story = Story(PIPELINE, tmp_path, launcher, 2, backend=Backend.ROCKSDB)
    story.until_commits(2)
    for parallelism in (4, 1, 2):
        story.kill(0)
        story.rescale(parallelism)
    finish(story)
