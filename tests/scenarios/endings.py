"""End of a scenario: its output is exact, or the story is printed."""

from __future__ import annotations

import logging

from tests.scenarios.story import Story

log = logging.getLogger(__name__)


def finish(story: Story) -> None:
    found = story.finish()
    log.warning("\n%s", "\n".join(story.told))
    assert not found, "\n".join(found + story.told)


def restored_rows(story: Story) -> int:
    """The most rows in flight that a restart brought back."""
    return max((restart.restored_inflight_rows for restart in story.restarts), default=0)
