"""``rollback --over``: what the next start does with outputs that another copy of the location has written to."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from penstock.connectors.base import FenceOpener
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.commands import NotifySourceCommitted
from penstock.errors import ConfigError, LocationError, SinkError, SinkFenced
from penstock.model.commits import LogPosition
from penstock.snapshots.commands.rolling_back import Output, roll_back
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import MemoryStore
from simulator.engine.store import Crash
from tests.support.snapshots.snapshot_kit import Target
from tests.unit.snapshots.test_moving_crashes import Revocable, Scene, no_answer
from tests.unit.snapshots.test_moving_crashes import driver as revocable_driver

TOLD = "23-1f3a9c0d"


class Shared(Revocable):
    """The output of two copies: the other one has committed epochs 6 and 900, and handed over batch ids below 70."""

    foreign = True
    openers: list[FenceOpener]
    held: list[LogPosition]

    def check_fence(self, opener: FenceOpener) -> bool:
        if self.foreign and TOLD not in opener.over:
            raise SinkError("refused")
        return not self.foreign

    def fence(self, opener: FenceOpener) -> str:
        self.check_fence(opener)
        self.foreign = False
        return "token"

    def next_batch(self) -> int:
        return 70

    def newest_epoch(self) -> int:
        return max(self.target.visible)


def started(store: MemoryStore, target: Target, committer: Shared) -> CommandExecutor:
    made = revocable_driver(store, target)
    made.committer = committer
    made.effects._committers = dict.fromkeys(made.effects._committers, committer)
    made.start()
    return made.effects


@pytest.fixture
def scene() -> Scene:
    made = Scene.made()
    made.target.visible |= {6: {}, 900: {}}
    return made


def test_ids_rise_above_those_that_the_other_copy_has_used(scene: Scene) -> None:
    roll_back(scene.there, "chk-3", output=Output.KEEP, over=[TOLD], ask=no_answer)
    view = started(scene.there, scene.target, Shared(scene.target)).view
    assert (view.first_checkpoint, view.next_batch, view.over) == (901, 70, ())
    assert SnapshotLog(scene.there).refresh().next_batch == 70


@pytest.mark.parametrize("dies_within", [False, True])
def test_a_retraction_takes_back_whatever_the_other_copy_wrote(scene: Scene, dies_within: bool) -> None:
    roll_back(scene.there, "chk-3", output=Output.RETRACT, over=[TOLD], ask=no_answer)
    committer = Shared(scene.target)
    if dies_within:
        retract = committer.retract

        def die(above: int, below: int) -> None:
            raise Crash

        committer.retract = die  # type: ignore[method-assign]
        with pytest.raises(Crash):
            started(scene.there, scene.target, committer)
        assert not committer.foreign, "the output says now that it is this location's"
        committer.retract = retract  # type: ignore[method-assign]
    started(scene.there, scene.target, committer)
    assert sorted(scene.target.visible) == [1, 2, 3]


def test_an_output_that_no_check_found_to_be_of_another_copy_is_not_gone_over(scene: Scene) -> None:
    """Pending epochs of the snapshot would be taken for those of the other copy."""
    roll_back(scene.there, "chk-3", output=Output.RETRACT, over=[TOLD], ask=no_answer)
    committer = Shared(scene.target)
    committer.foreign = False
    checked = committer.check_fence

    def seen_late(opener: FenceOpener) -> bool:
        known = checked(opener)
        committer.foreign = True
        return known

    committer.check_fence = seen_late  # type: ignore[method-assign]
    over: list[Collection[str]] = []

    def fence(opener: FenceOpener) -> str:
        over.append(opener.over)
        return "" if checked(opener) else "gone over"

    committer.fence = fence  # type: ignore[method-assign]
    with pytest.raises(SinkError, match="refused"):
        started(scene.there, scene.target, committer)
    assert (over, 900 in scene.target.visible) == ([()], True)


def test_a_driver_that_loses_the_output_while_it_takes_rows_back_does_not_go_on(scene: Scene) -> None:
    roll_back(scene.there, "chk-3", output=Output.RETRACT, over=[TOLD], ask=no_answer)
    committer = Shared(scene.target)

    def lost() -> None:
        raise SinkFenced("lost")

    committer.check_held = lost  # type: ignore[method-assign]
    with pytest.raises(SinkFenced):
        started(scene.there, scene.target, committer)
    assert SnapshotLog(scene.there).refresh().retract is not None, "the next start takes them back"


def test_what_over_takes(scene: Scene) -> None:
    with pytest.raises(ConfigError, match=r"--over 'newest': give the name of a position, like 23-1f3a9c0d"):
        roll_back(scene.there, "chk-3", output=Output.KEEP, over=["newest"], ask=no_answer)
    with pytest.raises(ConfigError, match="say, too, what becomes of it: --output"):
        roll_back(scene.there, "chk-4", over=[TOLD], ask=no_answer)
    roll_back(scene.there, "chk-3", output=Output.KEEP, over=[TOLD], ask=no_answer)
    assert not roll_back(scene.there, "chk-3", output=Output.KEEP, over=[TOLD], ask=no_answer).changed
    roll_back(scene.there, "chk-2", output=Output.KEEP, over=["7-00000000"], ask=no_answer)
    view = SnapshotLog(scene.there).refresh()
    assert view.over == (TOLD, "7-00000000"), "what was said before still holds"


def test_the_log_says_when_a_snapshot_was_left(scene: Scene) -> None:
    before = SnapshotLog(scene.there).refresh()
    assert before.left_at == 0
    roll_back(scene.there, "chk-4", output=Output.RETRACT, ask=no_answer)
    assert SnapshotLog(scene.there).refresh().left_at == 0, "nothing was left"
    here = SnapshotLog(scene.there).refresh().next_seq
    roll_back(scene.there, "chk-3", output=Output.KEEP, ask=no_answer)
    assert SnapshotLog(scene.there).refresh().left_at == here
    with pytest.raises(LocationError):
        roll_back(scene.there, "chk-4", output=Output.KEEP, ask=no_answer)


class Elsewhere(Revocable):
    """Another output of the query."""

    lost = False

    def hold(self, position: LogPosition, next_batch: int = 0) -> None:
        self.target.calls.append((f"held, ids below {next_batch}", position.seq))
        if self.lost:
            raise SinkFenced("lost")


def test_every_output_is_held_before_a_commit_to_any(scene: Scene) -> None:
    running = revocable_driver(scene.there, scene.target)
    running.start()
    other = Elsewhere(Target())
    running.effects._committers["elsewhere"] = other
    new = running.checkpoint()
    complete = running.effects._log.position_of(new)
    assert other.target.calls == [(f"held, ids below {running.effects.view.next_batch}", complete.seq)]
    other.lost = True
    with pytest.raises(SinkFenced):
        running.checkpoint()
    assert scene.target.calls[-1] == ("B", new), "nothing was committed"


@pytest.mark.parametrize("lost", [False, True])
def test_every_output_is_held_before_input_is_cleaned_away(scene: Scene, lost: bool) -> None:
    running = revocable_driver(scene.there, scene.target)
    running.start()
    new = running.checkpoint()
    other = Elsewhere(Target())
    other.lost = lost
    running.effects._committers["elsewhere"] = other
    told: list[object] = []

    class Cleaning:
        def removes_input(self) -> str:
            return "cleanSource"

        def committed(self, state: object) -> None:
            told.append((state, len(other.target.calls)))

    running.effects._sources[0] = Cleaning()  # type: ignore[assignment]
    tell = NotifySourceCommitted(0, "state")
    if lost:
        with pytest.raises(SinkFenced):
            running.effects.execute(tell)
    else:
        running.effects.execute(tell)
    assert told == ([] if lost else [("state", 1)])
    assert [seq for _, seq in other.target.calls] == [running.effects._log.position_of(new).seq]
