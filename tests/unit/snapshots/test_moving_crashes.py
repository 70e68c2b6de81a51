"""``copy``, ``move``, ``fork`` and ``rollback`` that die at any effect, at either place, and are done again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from penstock.coordinator.retraction import take_back
from penstock.errors import Fenced, LocationError, SinkError
from penstock.snapshots.catalog import Catalog, plan_restore
from penstock.snapshots.commands.copying import copy_snapshots
from penstock.snapshots.commands.forking import fork_snapshot
from penstock.snapshots.commands.log_check import check_log
from penstock.snapshots.commands.moving import move_query
from penstock.snapshots.commands.rolling_back import Output, roll_back
from penstock.snapshots.location import IDENTITY_PATH, claim_identity, identity_of, read_identity
from penstock.snapshots.log.entries import GenerationOpened, LogView, Retraction
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import Effect, MemoryStore
from tests.support.snapshots.snapshot_kit import SINK, Driver, Target, TargetCommitter, graph
from tests.unit.snapshots.test_crashes_and_rivals import READ_ONLY, Crash
from tests.unit.snapshots.test_requests import Asker, a_driver, end, existing
from tests.unit.snapshots.test_requests_crashes import no_answer


class Revocable(TargetCommitter):
    """Takes back what it has made visible."""

    retracted = 0

    def retraction_problem(self, above: int, below: int) -> str:
        return ""

    def retract(self, above: int, below: int) -> None:
        self.retracted += 1
        for epoch in [epoch for epoch in self.target.visible if above < epoch < below]:
            del self.target.visible[epoch]


def driver(store: MemoryStore, target: Target, name: str = "B", query_id: str = "query-1", **options: object) -> Driver:
    made = Driver(store, target, name, retained=100, query_id=query_id, **options)  # type: ignore[arg-type]
    made.committer = Revocable(target, name)
    made.effects._committers[SINK] = made.committer
    return made


@dataclass
class Scene:
    """A query that took four snapshots and has ended, or died; and a place where nothing is."""

    there: MemoryStore = field(default_factory=MemoryStore)
    here: MemoryStore = field(default_factory=MemoryStore)
    target: Target = field(default_factory=Target)
    sleeper: Driver | None = None

    @staticmethod
    def made(ended: bool = True) -> Scene:
        scene = Scene()
        scene.there.root, scene.here.root = "memory:there", "memory:here"
        claim_identity(scene.there, identity_of(graph(1), "query-1"))
        owner = a_driver(scene.there, 4, target=scene.target)
        scene.there.files["staged/sink-1/rows"] = b"a sink's own"
        if ended:
            end(owner)
        else:
            scene.sleeper = owner
        return scene

    @property
    def stores(self) -> tuple[MemoryStore, MemoryStore]:
        return self.there, self.here


Verb = Callable[[Scene], object]
VERBS: dict[str, Verb] = {
    "copy": lambda scene: copy_snapshots(scene.there, scene.here, force=True),
    "copy two": lambda scene: copy_snapshots(scene.there, scene.here, ["chk-2", "chk-3"], force=True),
    "move": lambda scene: move_query(scene.there, scene.here, force=True, ask=no_answer),
    "fork": lambda scene: fork_snapshot(scene.there, "chk-2", scene.here),
    "rollback": lambda scene: roll_back(scene.there, "chk-2", output=Output.RETRACT, force=True, ask=no_answer),
}


def at_effect(scene: Scene, at: int, happens: Callable[[], None]) -> Callable[[], int]:
    """Have something happen at one effect on either store; returns how many there were up to now."""
    seen = 0

    def hook(effect: Effect) -> None:
        nonlocal seen
        if effect.operation not in READ_ONLY:
            seen += 1
            if seen - 1 == at:
                happens()

    for store in scene.stores:
        store.hook = hook
    return lambda: seen


def crash_of(scene: Scene) -> Callable[[], None]:
    def gone(effect: Effect) -> None:
        raise Crash

    def crash() -> None:
        for store in scene.stores:
            store.hook = gone
        raise Crash

    return crash


def effects_of(verb: str, ended: bool) -> int:
    scene = Scene.made(ended)
    count = at_effect(scene, -1, lambda: None)
    VERBS[verb](scene)
    return count()


CASES = [(verb, ended, at) for verb in VERBS for ended in (True, False) for at in range(effects_of(verb, ended))]


def check(store: MemoryStore) -> LogView:
    """The log is whole, and every snapshot that it lists can be restored."""
    store.hook = None
    if not store.exists(IDENTITY_PATH):
        return LogView()
    identity = read_identity(store)
    checked = check_log(store)
    assert {path for path in checked.problems if path != "log/"} == set()
    catalog = Catalog(store)
    for record in checked.view.snapshots:
        metadata = catalog.read(record)
        assert metadata.query_id in (identity.query_id, identity.origin)
        catalog.check(metadata, checksums=True)
        for slot in plan_restore(metadata, graph(1)):
            for manifest in slot:
                for state in load_restore(manifest, store).operators.values():
                    assert all(rows.batch.num_rows for table in state.tables.values() for rows in table)
    return checked.view


def startable(store: MemoryStore) -> bool:
    """Return True if the query could continue here."""
    if not store.exists(IDENTITY_PATH) or read_identity(store).archive:
        return False
    return not SnapshotLog(store).refresh().moved


def check_scene(scene: Scene) -> None:
    views = [check(store) for store in scene.stores]
    live = [read_identity(store).query_id for store in scene.stores if startable(store)]
    assert len(set(live)) == len(live), "one query at two places"
    assert views[0].snapshots or views[0].moved, "nothing is lost at the origin"


def facts(scene: Scene) -> list[object]:
    """Return the facts that a command must reach, however often it was started."""
    found: list[object] = []
    for store in scene.stores:
        view = check(store)
        found += [[(record.checkpoint, record.in_lineage) for record in view.snapshots], view.retract]
        found.append(sorted(path for path in store.files if not path.startswith("log/")))
    return found


@functools.cache
def undisturbed(verb: str, ended: bool) -> list[object]:
    scene = Scene.made(ended)
    VERBS[verb](scene)
    return facts(scene)


def test_there_is_much_to_crash_at() -> None:
    assert len(CASES) > 300
    assert {verb for verb, _, _ in CASES} == set(VERBS)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("verb", "ended", "at"), CASES)
def test_a_crash_at_any_effect_is_completed_by_the_same_command(verb: str, ended: bool, at: int) -> None:
    scene = Scene.made(ended)
    at_effect(scene, at, crash_of(scene))
    with pytest.raises(Crash):
        VERBS[verb](scene)
    check_scene(scene)
    VERBS[verb](scene)
    check_scene(scene)
    assert facts(scene) == undisturbed(verb, ended)
    VERBS[verb](scene)  # it is done, and says so
    check_scene(scene)


@pytest.mark.parametrize(
    ("verb", "at"), [(verb, at) for verb, ended, at in CASES if verb in ("move", "rollback") and not ended]
)
def test_a_driver_that_wakes_up_meanwhile_or_afterwards_is_fenced_or_was_quicker(verb: str, at: int) -> None:
    scene = Scene.made(ended=False)
    sleeper = scene.sleeper
    assert sleeper is not None
    checkpoint = sleeper.trigger()
    sleeper.acknowledge(checkpoint)
    outcome: list[str] = []

    def wake() -> None:
        for store in scene.stores:
            store.hook = None
        try:
            sleeper.work()
            outcome.append("finished")
        except Fenced:
            outcome.append("fenced")

    at_effect(scene, at, wake)
    VERBS[verb](scene)
    check_scene(scene)
    assert outcome
    if outcome == ["fenced"]:
        assert checkpoint not in scene.target.visible
        with pytest.raises(Fenced):
            sleeper.effects._log.check_owned()
    if verb == "move":
        assert existing(scene.here)[-1] == (checkpoint if outcome == ["finished"] else 4)


def test_a_moved_query_goes_on_where_it_is_now_and_nowhere_else() -> None:
    scene = Scene.made()
    VERBS["move"](scene)
    assert set(scene.there.files) == {IDENTITY_PATH, *scene.there.list("log")}
    assert scene.here.files["staged/sink-1/rows"] == b"a sink's own"
    with pytest.raises(LocationError, match="was moved to another one"):
        driver(scene.there, scene.target).start()
    again = driver(scene.here, scene.target)
    ready = again.start()
    assert (ready.opened.generation, ready.opened.restored) == (3, 4)
    assert again.checkpoint() > 4
    assert check(scene.here).lineage[-1].checkpoint > 4


def test_an_interrupted_move_may_be_given_up_or_go_elsewhere() -> None:
    """Before the last entry the query is where it was; behind it, only that target is completed."""
    for at in range(effects_of("move", True)):
        scene, third = Scene.made(), MemoryStore()
        at_effect(scene, at, crash_of(scene))
        with pytest.raises(Crash):
            VERBS["move"](scene)
        check_scene(scene)
        if SnapshotLog(scene.there).refresh().moved:
            with pytest.raises(LocationError, match="to another place"):
                move_query(scene.there, third, force=True, ask=no_answer)
        else:
            driver(scene.there, scene.target).start()
            move_query(scene.there, third, force=True, ask=no_answer)
            assert existing(third) == [1, 2, 3, 4]
            with pytest.raises(LocationError, match="to another place"):
                VERBS["move"](scene)
            assert not scene.here.exists(IDENTITY_PATH)


# -- rollback ----------------------------------------------------


def test_a_rollback_with_retract_is_enforced_before_anything_runs_and_only_once() -> None:
    scene = Scene.made()
    assert sorted(scene.target.visible) == [1, 2, 3, 4]
    VERBS["rollback"](scene)
    assert sorted(scene.target.visible) == [1, 2, 3, 4], "nothing is taken back yet"
    again = driver(scene.there, scene.target)
    ready = again.start()
    assert ready.opened.restored == 2
    assert sorted(scene.target.visible) == [1, 2]
    new = again.checkpoint()
    assert new > 4, "no id is used twice"
    assert sorted(scene.target.visible) == [1, 2, new]
    assert [r.checkpoint for r in check(scene.there).lineage] == [1, 2, new]
    end(again)
    third = driver(scene.there, scene.target, "C")
    third.start()
    assert (again.committer.retracted, third.committer.retracted) == (1, 0)  # type: ignore[attr-defined]
    assert sorted(scene.target.visible) == [1, 2, new]


def test_a_start_that_dies_at_any_effect_takes_back_all_the_same() -> None:
    def effects() -> int:
        scene = Scene.made()
        VERBS["rollback"](scene)
        count = at_effect(scene, -1, lambda: None)
        driver(scene.there, scene.target).start()
        return count()

    total = effects()
    assert total >= 2
    for at in range(total):
        scene = Scene.made()
        VERBS["rollback"](scene)
        at_effect(scene, at, crash_of(scene))
        with pytest.raises(Crash):
            driver(scene.there, scene.target).start()
        view = check(scene.there)
        assert view.retract is not None or sorted(scene.target.visible) == [1, 2], "the mark goes when it is done"
        again = driver(scene.there, scene.target, "C")
        assert again.start().opened.restored == 2
        new = again.checkpoint()
        assert sorted(scene.target.visible) == [1, 2, new]


def test_a_second_driver_that_takes_back_late_takes_nothing_of_the_first_ones() -> None:
    scene = Scene.made()
    VERBS["rollback"](scene)
    first, late = driver(scene.there, scene.target, "B"), driver(scene.there, scene.target, "C")
    new: list[int] = []
    take_back = late.committer.retract

    def retract(above: int, below: int) -> None:
        if not new:
            first.start()
            new.append(first.checkpoint())
        take_back(above, below)

    late.committer.retract = retract  # type: ignore[method-assign]
    ready = late.start()
    assert sorted(scene.target.visible) == [1, 2, *new]
    assert ready.opened.restored == new[0], "it looked again, and went on behind the first one"


def test_other_verbs_and_a_move_keep_what_a_rollback_demands() -> None:
    from penstock.snapshots.commands import ownership
    from penstock.snapshots.commands import requests as rq

    scene = Scene.made()
    VERBS["rollback"](scene)
    demanded = check(scene.there).retract
    assert demanded is not None
    for _ in range(40):  # over a summary
        ownership.request_change(scene.there, rq.CollectOrphans(), ask=no_answer)
    VERBS["move"](scene)
    assert check(scene.here).retract == demanded
    driver(scene.here, scene.target).start()
    assert sorted(scene.target.visible) == [1, 2]


def test_what_cannot_be_taken_back_stops_the_start_and_keep_is_the_way_out() -> None:
    scene = Scene.made()
    VERBS["rollback"](scene)
    plain = Driver(scene.there, scene.target, "P", retained=100)
    with pytest.raises(
        SinkError, match=r"sink-1 \(NoSink\): it cannot take back.*rollback LOCATION chk-2 --output keep"
    ):
        plain.start()
    assert sorted(scene.target.visible) == [1, 2, 3, 4]
    done = roll_back(scene.there, "chk-2", output=Output.KEEP, ask=no_answer)
    assert (done.abandoned, done.retracts, done.changed) == ((), False, True)
    again = Driver(scene.there, scene.target, "P", retained=100)
    assert again.start().opened.restored == 2
    new = again.checkpoint()
    assert sorted(scene.target.visible) == [1, 2, 3, 4, new]


def test_a_rollback_says_what_becomes_of_output_and_knows_its_lineage() -> None:
    scene = Scene.made()
    with pytest.raises(LocationError, match=r"--output retract .*--output keep"):
        roll_back(scene.there, "chk-2", ask=no_answer)
    assert not roll_back(scene.there, "chk-4", ask=no_answer).changed
    roll_back(scene.there, "chk-3", output=Output.RETRACT, ask=no_answer)
    with pytest.raises(LocationError, match="chk-4 is not in the lineage"):
        roll_back(scene.there, "chk-4", output=Output.KEEP, ask=no_answer)
    done = roll_back(scene.there, "chk-1", output=Output.RETRACT, ask=no_answer)
    assert done.abandoned == (2, 3)
    driver(scene.there, scene.target).start()
    assert sorted(scene.target.visible) == [1]
    assert existing(scene.there) == [1, 2, 3, 4], "they stay"


def test_an_output_that_is_gone_or_goes_elsewhere_is_not_forgotten() -> None:
    sink = graph(1).vertices[1].sink
    assert sink is not None
    target = Target(visible={3: {}})
    for sinks, reason in (
        ({"sink-9": []}, "sink-9: the query does not have this output any more"),
        ({SINK: ["0123"]}, "it does not write any more to where that output is"),
        ({SINK: [], "sink-9": []}, "sink-9: the query does not have this output any more"),
    ):
        with pytest.raises(SinkError, match=reason):
            take_back(Retraction(2, 9, sinks), graph(1), {SINK: Revocable(target)})
        assert list(target.visible) == [3]
    take_back(Retraction(2, 9, {}), graph(1), {SINK: TargetCommitter(target)})  # a new output has nothing to take back
    take_back(Retraction(2, 9, {SINK: []}), graph(1), {SINK: Revocable(target)})
    assert target.visible == {}


@pytest.mark.parametrize("force", [False, True])
def test_a_query_that_runs_is_neither_moved_nor_rolled_back(force: bool) -> None:
    scene = Scene.made(ended=False)
    asker = Asker(scene.sleeper)
    with pytest.raises(LocationError, match="a query runs at this location; stop it first"):
        move_query(scene.there, scene.here, force=force, ask=asker)  # type: ignore[arg-type]
    with pytest.raises(LocationError, match="a query runs at this location; stop it first"):
        roll_back(scene.there, "chk-2", output=Output.KEEP, force=force, ask=asker)  # type: ignore[arg-type]
    assert scene.here.files == {}
    assert asker.asked == 2
    assert scene.sleeper is not None
    scene.sleeper.checkpoint()


def test_pending_commits_up_to_the_snapshot_are_still_made() -> None:
    scene = Scene.made(ended=False)
    sleeper = scene.sleeper
    assert sleeper is not None
    first = sleeper.trigger()
    sleeper.acknowledge(first)
    while first not in existing(scene.there):  # logged, and not committed
        event = sleeper.effects.execute(sleeper.works.pop(0))
        if event is not None:
            sleeper.feed(event)
    assert sorted(scene.target.visible) == [1, 2, 3, 4]
    roll_back(scene.there, f"chk-{first}", force=True, ask=no_answer)
    again = driver(scene.there, scene.target)
    again.start()
    assert sorted(scene.target.visible) == [1, 2, 3, 4, first]


def test_a_verbs_generation_has_no_ids_of_its_own() -> None:
    scene = Scene.made()
    before = SnapshotLog(scene.there).refresh()
    VERBS["rollback"](scene)
    log = SnapshotLog(scene.there)
    entry = log._read(before.next_seq).entry
    assert isinstance(entry, GenerationOpened)
    assert entry.first_checkpoint == entry.reserved_until == before.next_checkpoint
    assert entry.retract is not None
    assert (entry.retract.above, entry.retract.below) == (2, before.next_checkpoint)
