"""Every shape of job, killed and rescaled, on real slot processes, with records that check themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.elements import Alignment
from tests.scenarios.endings import finish, restored_rows
from tests.scenarios.shapes import NEARLY_EMPTY, PIPELINE, SHAPES, UNION, Shape
from tests.scenarios.story import Story
from tests.support.dataflow.process_launcher import ProcessLauncher

pytestmark = pytest.mark.slow


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_killed_and_rescaled_under_backpressure_each_record_comes_once_unharmed_and_in_order(
    tmp_path: Path, launcher: ProcessLauncher, shape: Shape
) -> None:
    story = Story(shape, tmp_path, launcher, 2)
    story.until_commits(2)
    story.rescale(4)
    story.until_commits()
    story.kill(1)
    story.rescale(1)
    story.kill(0)
    story.rescale(2)
    finish(story)
    if shape is not NEARLY_EMPTY:  # there a queue is seldom longer than what is being processed
        assert restored_rows(story) > 0, "no record in flight was ever restored"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", [PIPELINE, UNION, NEARLY_EMPTY], ids=lambda shape: shape.name)
def test_aligned_it_is_the_same(tmp_path: Path, launcher: ProcessLauncher, shape: Shape) -> None:
    story = Story(shape, tmp_path, launcher, 4, Alignment.ALIGNED, crowded=False)
    story.until_commits(2)
    story.kill(0, 3)
    story.until_commits()
    story.rescale(1)
    story.until_commits()
    story.restart(2, Alignment.ALIGNED)
    story.kill(1)
    finish(story)
