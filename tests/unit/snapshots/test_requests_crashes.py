"""A driver or a verb that dies at any effect of a deletion, a collection or a labelling, and one that wakes up in the
middle of another's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.errors import Fenced, LocationError
from penstock.snapshots.commands import ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Effect, MemoryStore
from tests.support.snapshots.snapshot_kit import Driver, Target
from tests.unit.snapshots.test_crashes_and_rivals import READ_ONLY, Crash, check_location
from tests.unit.snapshots.test_requests import Asker, a_driver, end, existing, look, requests_of

GARBAGE = ("data/0-1-0.arrows", "snapshots/chk-0/metadata.json")


def no_answer(store: object, verb: rq.Command, token: str) -> None:
    return None


def a_location(ended: bool) -> tuple[MemoryStore, Target, Driver]:
    store, target = MemoryStore(), Target()
    driver = a_driver(store, target=target)
    store.files.update(dict.fromkeys(GARBAGE, b"left by a crash"))
    if ended:
        end(driver)
    return store, target, driver


def by_request(store: MemoryStore, driver: Driver, verb: rq.Change) -> None:
    ownership.request_change(store, verb, ask=Asker(driver))  # type: ignore[arg-type]


def by_itself(store: MemoryStore, driver: Driver, verb: rq.Change) -> None:
    ownership.request_change(store, verb, force=True, ask=no_answer)


WAYS = {"asked": by_request, "forced": by_itself, "ended": by_itself}
VERBS = {
    "delete": rq.DeleteSnapshots([1, 2]),
    "gc": rq.CollectOrphans(),
    "label": rq.LabelSnapshot(2, "mine", "by hand"),
}
Way = Callable[[MemoryStore, Driver, rq.Change], None]


def at_effect(store: MemoryStore, at: int, happens: Callable[[], None]) -> Callable[[], int]:
    """Have something happen at one effect of those that change something; returns how many there were up to now."""
    seen = 0

    def hook(effect: Effect) -> None:
        nonlocal seen
        if effect.operation not in READ_ONLY:
            seen += 1
            if seen - 1 == at:
                happens()

    store.hook = hook
    return lambda: seen


def check_labels(store: MemoryStore, verb: str) -> None:
    """Check that the done request shows exactly once, and that no other snapshot has a label."""
    labelled = [(r.checkpoint, r.label, r.note, r.requested) for r in SnapshotLog(store).refresh().snapshots if r.label]
    assert labelled == ([(2, "mine", "by hand", True)] if verb == "label" else [])
    entries = [path for path, data in store.files.items() if path.startswith("log/") and b"snapshot-labelled" in data]
    assert len(entries) == (verb == "label")


def effects_of(how: str, verb: str) -> int:
    store, _, driver = a_location(how == "ended")
    count = at_effect(store, -1, lambda: None)
    WAYS[how](store, driver, VERBS[verb])
    return count()


CASES = [(how, verb, at) for how in WAYS for verb in VERBS for at in range(effects_of(how, verb))]


def crash_of(store: MemoryStore) -> Callable[[], None]:
    """The process is gone: nothing it would tidy up with takes effect either."""

    def gone(effect: Effect) -> None:
        raise Crash

    def crash() -> None:
        store.hook = gone
        raise Crash

    return crash


def test_there_is_much_to_crash_at() -> None:
    assert len(CASES) > 100


@pytest.mark.parametrize(("how", "verb", "at"), CASES)
def test_a_crash_at_any_effect_leaves_orphans_at_most(how: str, verb: str, at: int) -> None:
    store, target, driver = a_location(how == "ended")
    at_effect(store, at, crash_of(store))
    with pytest.raises(Crash):
        WAYS[how](store, driver, VERBS[verb])
    view = check_location(store, target)
    assert view.lineage[-1].checkpoint == 3
    successor = Driver(store, target, "B", retained=100)
    successor.start()
    look(successor)
    ownership.request_change(store, VERBS[verb], ask=Asker(successor))  # type: ignore[arg-type]
    ownership.request_change(store, rq.CollectOrphans(), ask=Asker(successor))  # type: ignore[arg-type]
    assert existing(store) == ([3] if verb == "delete" else [1, 2, 3])
    needed = {path for path in store.files if path.startswith(("data/", "snapshots/"))}
    assert len(needed) == 2 * len(existing(store)), "nothing but the snapshots' own is left"
    check_labels(store, verb)
    assert check_location(store, target).lineage[-1].checkpoint == 3
    assert successor.checkpoint() > 3


@pytest.mark.parametrize(("how", "verb", "at"), [case for case in CASES if case[0] == "asked"])
def test_a_store_that_fails_once_is_only_a_delay(how: str, verb: str, at: int) -> None:
    store, target, driver = a_location(ended=False)

    def fail() -> None:
        raise OSError(28, "No space left on device")

    at_effect(store, at, fail)
    try:
        WAYS[how](store, driver, VERBS[verb])
    except (OSError, LocationError):  # who asked is told, and asks again
        WAYS[how](store, driver, VERBS[verb])
    store.hook = None
    ownership.request_change(store, rq.CollectOrphans(), ask=Asker(driver))  # type: ignore[arg-type]
    assert existing(store) == ([3] if verb == "delete" else [1, 2, 3])
    assert not set(GARBAGE) & set(store.files)
    check_labels(store, verb)
    driver.checkpoint()
    check_location(store, target)


@pytest.mark.parametrize(("how", "verb", "at"), [case for case in CASES if case[0] != "asked"])
def test_a_driver_that_starts_in_the_middle_of_a_verb_is_not_robbed(how: str, verb: str, at: int) -> None:
    store, target, _ = a_location(how == "ended")
    rival = Driver(store, target, "B", retained=100)

    def start() -> None:
        store.hook = None
        rival.start()
        rival.checkpoint()
        rival.trigger()
        rival.acknowledge(rival.core.coordinator.in_flight[-1])  # captured, not logged yet

    at_effect(store, at, start)
    ownership.request_change(store, VERBS[verb], force=True, ask=Asker(rival))  # type: ignore[arg-type]
    fenced = False
    try:
        rival.work()
    except Fenced:  # it had begun before the verb took the location over
        fenced = True
    view = check_location(store, target)
    assert fenced is (view.ended or rival.core.generation != view.owner)
    assert not {1, 2} & set(existing(store)) if verb == "delete" else {1, 2, 3} <= set(existing(store))
    check_labels(store, verb)


@pytest.mark.parametrize(("how", "verb", "at"), [case for case in CASES if case[0] == "forced"])
def test_a_driver_that_wakes_up_in_the_middle_of_a_forced_verb_is_fenced_or_wins_before(
    how: str, verb: str, at: int
) -> None:
    store, target, driver = a_location(ended=False)
    checkpoint = driver.trigger()
    driver.acknowledge(checkpoint)
    outcome: list[str] = []

    def wake() -> None:
        store.hook = None
        try:
            driver.work()
            outcome.append("finished")
        except Fenced:
            outcome.append("fenced")

    at_effect(store, at, wake)
    ownership.request_change(store, VERBS[verb], force=True, ask=no_answer)
    view = check_location(store, target)
    assert [record.checkpoint for record in view.lineage][-1] == (checkpoint if outcome == ["finished"] else 3)
    assert view.ended
    check_labels(store, verb)
    assert requests_of(store) == []
    successor = Driver(store, target, "B", retained=100)
    ready = successor.start()
    assert ready.opened.restored == view.lineage[-1].checkpoint
    assert successor.checkpoint() > checkpoint, "no id is used twice"
    check_location(store, target)
