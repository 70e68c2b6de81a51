"""A driver that dies at any effect, a store that fails at any effect, and two drivers on one location."""

from __future__ import annotations

import msgspec
import pytest
from greenlet import getcurrent, greenlet
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.machines.checkpoint_events import CheckpointAborted
from penstock.errors import CheckpointFailed, Fenced
from penstock.model.commits import EpochCommit
from penstock.model.messages import DeclineCheckpoint, FromSlot
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.log.entries import GenerationOpened, LogView, SnapshotComplete, fold
from penstock.snapshots.log.snapshot_log import SnapshotLog, entry_path
from penstock.snapshots.store.store import Effect, MemoryStore
from tests.support.effort import some
from tests.support.snapshots.snapshot_kit import Driver, Target, TargetCommitter

READ_ONLY = ("read", "list", "size")


class Crash(BaseException):
    """The process is gone."""


def effects_of_a_life(store: MemoryStore, target: Target) -> int:
    """Return the number of effects (before and after each) in a life of four checkpoints with retention of one."""
    count = 0

    def count_it(effect: Effect) -> None:
        nonlocal count
        count += effect.operation not in READ_ONLY

    store.hook = count_it
    live(Driver(store, target, "A", retained=1))
    return count


def live(player: Driver, checkpoints: int = 4) -> None:
    player.start()
    for _ in range(checkpoints):
        player.checkpoint()


EFFECTS = effects_of_a_life(MemoryStore(), Target())


def check_location(store: MemoryStore, target: Target) -> LogView:
    """Check that the log and every existing snapshot are whole."""
    store.hook = None
    log = SnapshotLog(store, lambda: "reader")
    view = log.refresh()
    catalog = Catalog(store)
    for record in view.snapshots:
        catalog.check(catalog.read(record), checksums=True)
    complete = {entry.checkpoint for entry in entries(store) if isinstance(entry, SnapshotComplete)}
    assert all(epoch <= max(complete, default=0) for epoch in target.visible), "nothing shows before its snapshot"
    return view


def entries(store: MemoryStore) -> list[object]:
    log = SnapshotLog(store, lambda: "reader")
    return [log._read(seq).entry for seq in range(1, log.refresh().next_seq)]


def test_a_life_has_effects_to_crash_at() -> None:
    assert EFFECTS > 60


@pytest.mark.parametrize("at", range(EFFECTS))
def test_a_crash_at_any_effect_leaves_a_location_from_which_the_next_driver_goes_on(at: int) -> None:
    store, target = MemoryStore(), Target()
    left = at

    def crash(effect: Effect) -> None:
        nonlocal left
        if effect.operation in READ_ONLY:
            return
        if left == 0:
            raise Crash
        left -= 1

    store.hook = crash
    with pytest.raises(Crash):
        live(Driver(store, target, "A", retained=1))
    before = check_location(store, target)
    fresh = Driver(store, target, "B", retained=1)
    ready = fresh.start()
    newest = before.lineage[-1].checkpoint if before.lineage else 0
    assert (ready.restored.checkpoint if ready.restored else 0) == newest
    assert all(epoch in target.visible for epoch in range(1, newest + 1)), "what was complete shows, once"
    assert all(epoch <= newest for epoch in target.visible)
    last = fresh.checkpoint()
    after = check_location(store, target)
    assert [record.checkpoint for record in after.snapshots] == [last]
    assert store.list("data") == [f"data/{ready.opened.generation}-{last}-0-state.arrows"], "no orphan is left"
    assert store.list("snapshots") == [f"snapshots/chk-{last}/metadata.json"]


@pytest.mark.parametrize("at", range(EFFECTS))
def test_a_store_that_fails_once_at_any_effect_fails_a_checkpoint_and_not_the_query(at: int) -> None:
    store, target = MemoryStore(), Target()
    player = Driver(store, target, "A", retained=1)
    player.start()
    left = at

    def fail(effect: Effect) -> None:
        nonlocal left
        if effect.operation not in READ_ONLY:
            left -= 1
            if left == -1:
                raise OSError(28, "No space left on device")

    store.hook = fail
    for _ in range(5):
        checkpoint = player.trigger()
        try:
            player.acknowledge(checkpoint)
        except CheckpointFailed as error:
            player.feed(FromSlot(1, DeclineCheckpoint(0, checkpoint, str(error))))
        player.work()
    view = check_location(store, target)
    assert [record.checkpoint for record in view.snapshots] == [5] or len(view.snapshots) <= 2
    failed = [o for o in player.others if isinstance(o, CheckpointAborted)]
    assert len(failed) <= 1
    assert all("No space left" in abort.reason for abort in failed)
    assert sorted(target.visible) == [1, 2, 3, 4, 5] if not failed or failed[0].checkpoint < 5 else True


# -- two drivers on one location ----------------------------------------------------


class Process:
    """A driver in a greenlet of its own that pauses before and after each effect, on the store or on the sink."""

    def __init__(self, store: MemoryStore, target: Target, name: str, checkpoints: int, retained: int) -> None:
        self.player = Driver(store, target, name, retained=retained)
        self.player.effects._committers["sink-1"] = PausingCommitter(target, name)
        self.checkpoints = checkpoints
        self.outcome = ""
        self.green = greenlet(self._run)

    def _run(self) -> None:
        try:
            live(self.player, self.checkpoints)
            self.outcome = "finished"
        except Fenced:
            self.outcome = "fenced"

    def step(self) -> bool:
        """Run to the next pause; False once it has ended."""
        if not self.green.dead:
            self.green.switch()
        return not self.green.dead


class PausingCommitter(TargetCommitter):
    def commit(self, permit: EpochCommit) -> None:
        pause()
        super().commit(permit)
        pause()


def pause() -> None:
    parent = getcurrent().parent
    if parent is not None:
        parent.switch()


def race(schedule: list[bool], checkpoints: int = 2, retained: int = 100) -> None:
    """Interleave two drivers by a schedule (True: A), then let the rest run out, then check the outcome."""
    store, target = MemoryStore(), Target()
    store.hook = lambda effect: pause()
    processes = [Process(store, target, name, checkpoints, retained) for name in "AB"]
    for first in schedule:
        processes[0 if first else 1].step()
    for process in processes:
        while process.step():
            continue
    outcomes = {process.player.name: process.outcome for process in processes}
    view = check_location(store, target)
    story = entries(store)
    opened = [entry for entry in story if isinstance(entry, GenerationOpened)]
    winner = next(p for p in processes if p.player.core.generation == view.owner)
    assert winner.outcome == "finished", outcomes
    (loser,) = [p for p in processes if p is not winner]
    if loser.outcome == "finished":  # then it had ended before the other one opened
        mine = max(
            n for n, entry in enumerate(story) if getattr(entry, "generation", 0) == loser.player.core.generation
        )
        assert mine < story.index(opened[-1]), outcomes
    if retained >= len(story):  # else the oracle's metadata is gone
        check_lineage(store, story, target)


def check_lineage(store: MemoryStore, story: list[object], target: Target) -> None:
    """Everything that shows was in a complete snapshot when it was shown, each epoch once, in order, and all of it."""
    view, expected = LogView(), {}
    for entry in story:
        view = fold(view, entry)  # type: ignore[arg-type]
        if isinstance(entry, SnapshotComplete):
            record = view.snapshot(entry.checkpoint)
            assert record is not None
            for slot in Catalog(store).read(record).slots:
                for subtask in slot.subtasks:
                    for epoch, message in subtask.pending_messages.items():
                        expected.setdefault(epoch, {})[subtask.index] = message
    # The owner may have ended with its last epochs uncommitted; a successor shows them.
    successor = Driver(store, target, "C", retained=100)
    successor.start()
    assert target.visible == expected
    firsts = list(dict.fromkeys(epoch for _, epoch in target.calls))
    assert firsts == sorted(firsts), "epochs first show in order"


@settings(max_examples=some(150), deadline=None)
@given(st.lists(st.booleans(), max_size=160))
def test_of_two_drivers_interleaved_at_every_effect_exactly_one_wins(schedule: list[bool]) -> None:
    race(schedule)


def test_a_snapshot_that_its_owner_deletes_while_a_newcomer_reads_it_is_not_called_corrupt() -> None:
    store, target = MemoryStore(), Target()
    owner = Driver(store, target, "A", retained=1)
    owner.start()
    first = owner.checkpoint()

    def overtake(effect: Effect) -> None:
        if effect.operation == "read" and effect.path == f"data/1-{first}-0-state.arrows":
            store.hook = None
            owner.checkpoint()
            assert effect.path not in store.files

    store.hook = overtake
    ready = Driver(store, target, "B").start()
    assert ready.restored is not None
    assert (ready.opened.generation, ready.restored.checkpoint) == (2, first + 1)


@settings(max_examples=some(100), deadline=None)
@given(st.lists(st.booleans(), max_size=200))
def test_no_rival_deletes_what_the_winner_needs(schedule: list[bool]) -> None:
    race(schedule, checkpoints=3, retained=1)


@pytest.mark.parametrize("pause_at", range(0, 130, 2))
def test_a_driver_that_sleeps_at_any_effect_wakes_up_fenced(pause_at: int) -> None:
    race([True] * pause_at + [False] * 300, checkpoints=3)


def test_the_log_names_files_by_twenty_digits() -> None:
    assert entry_path(7) == "log/00000000000000000007.json"
    assert msgspec.json.encode(GenerationOpened(1, 0, 1, 65, 0)).startswith(b'{"type":"generation-opened"')
