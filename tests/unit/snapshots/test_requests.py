"""Request files, and who carries out what they ask for: the driver that owns the location, or a verb in its place."""

from __future__ import annotations

import re

import msgspec
import pytest

from penstock.coordinator.commands import (
    AnswerRequestFiles,
    AnswerTake,
    CollectionFailed,
    JobEvent,
    TakesRequested,
    WriteSnapshot,
)
from penstock.coordinator.machines.checkpoint_events import CollectGarbage, MetadataWritten, SnapshotRequested
from penstock.errors import Fenced, LocationError
from penstock.model.elements import Alignment
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands import ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.deleting import choose_deletable
from penstock.snapshots.commands.location_cache import CachedLocation
from penstock.snapshots.commands.owned_location import OwnedLocation
from penstock.snapshots.commands.ownership import request_change, request_snapshot
from penstock.snapshots.commands.request_handler import ANSWER_KEPT_MS, INTERRUPTED, MAX_REQUESTS, RequestHandler
from penstock.snapshots.commands.snapshot_sizes import measure_snapshot
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.format.sections import data_path, state_path
from penstock.snapshots.log.entries import EpochCommitted, LogView, SnapshotComplete
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Effect, MemoryStore
from tests.support.snapshots.snapshot_kit import Driver, Target
from tests.unit.snapshots.test_crashes_and_rivals import check_location
from tests.unit.snapshots.test_references_and_collection import Bench

TOKEN = "0123456789abcdef" * 2
GARBAGE = "data/1-1-7.arrows"


def look(driver: Driver) -> JobEvent | None:
    return driver.effects.execute(driver.core.answer_requests())


class Asker:
    """Asks as a verb does; while it sleeps a driver looks for requests, if there is one."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.driver = driver
        self.asked = 0
        self.now_s = 0.0

    def __call__(self, store: MemoryStore, verb: rq.Command, token: str) -> rq.Answer | None:  # type: ignore[override]
        self.asked += 1
        return rq.ask(store, verb, token, clock=lambda: self.now_s, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.driver is not None:
            look(self.driver)


def a_driver(store: MemoryStore, checkpoints: int = 3, name: str = "A", target: Target | None = None) -> Driver:
    driver = Driver(store, target or Target(), name, retained=100)
    driver.start()
    for _ in range(checkpoints):
        driver.checkpoint()
    return driver


def end(driver: Driver) -> None:
    driver.end_generation("the query ends")
    driver.effects.close(driver.core.coordinator.committed_epoch, driver.core.coordinator.next_checkpoint)


def existing(store: MemoryStore) -> list[int]:
    return [record.checkpoint for record in SnapshotLog(store).refresh().snapshots]


def requests_of(store: MemoryStore) -> list[str]:
    return [path for path in store.files if path.startswith("requests/")]


def test_a_driver_deletes_what_it_is_asked_to_and_nothing_of_the_request_stays() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    mine = [path for path in store.files if path.startswith(("data/1-1-", "snapshots/chk-1/"))]
    occupied = sum(len(store.files[path]) for path in mine)
    answer = request_change(store, rq.DeleteSnapshots([1]), ask=Asker(driver))
    assert (answer.files, answer.bytes) == (len(mine), occupied)
    assert not set(mine) & set(store.files)
    assert existing(store) == [2, 3]
    assert requests_of(store) == []
    driver.checkpoint()
    assert check_location(store, driver.committer.target).owner == 1, "it goes on"


def test_a_snapshot_that_was_asked_for_is_never_collected_but_can_be_deleted() -> None:
    store = MemoryStore()
    driver = Driver(store, Target(), retained=1)
    driver.start()
    driver.feed(SnapshotRequested(Alignment.UNALIGNED, "mine", note="before the move", ticket=1))
    driver.acknowledge(1)
    driver.work()
    driver.checkpoint()
    driver.checkpoint()
    view = SnapshotLog(store).refresh()
    assert [(r.checkpoint, r.label, r.note) for r in view.snapshots] == [(1, "mine", "before the move"), (3, "", "")]
    assert Catalog(store).read(view.snapshots[0]).note == "before the move"
    request_change(store, rq.DeleteSnapshots(choose_deletable("there", view, ["mine"])), ask=Asker(driver))
    assert existing(store) == [3]


def test_files_go_with_the_last_snapshot_that_needs_them() -> None:
    bench = Bench(retained=100)
    bench.arrive(1, 2, 3)
    for _ in range(3):
        bench.checkpoint()
    bench.waiting.clear()
    bench.checkpoint()
    shared = data_path(1, 1, 0)
    for checkpoint, stays in ((2, True), (1, True), (3, False)):
        request_change(bench.store, rq.DeleteSnapshots([checkpoint]), ask=Asker(bench.driver))
        bench.check()
        assert (shared in bench.store.files) is stays


def test_files_of_a_snapshot_that_is_not_logged_yet_are_no_orphans() -> None:
    store = MemoryStore()
    driver = a_driver(store, 1)
    driver.feed(SnapshotRequested(Alignment.UNALIGNED, ticket=1))
    driver.acknowledge(2)
    (write,) = (work for work in driver.works if isinstance(work, WriteSnapshot))
    driver.works.remove(write)
    assert isinstance(driver.effects.execute(write), MetadataWritten)
    driver.feed(SnapshotRequested(Alignment.UNALIGNED, ticket=2))
    driver.acknowledge(3)
    driver.work()
    captured = state_path(1, 2, 0)
    rq.create_file(store, TOKEN, rq.REQUEST, rq.Request(1, rq.CollectOrphans()))
    driver.effects.execute(AnswerRequestFiles(CollectGarbage((), ())))
    assert captured in store.files


def test_a_snapshot_that_is_gone_already_is_no_error() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    assert request_change(store, rq.DeleteSnapshots([1, 77]), ask=Asker(driver)).files > 0
    assert request_change(store, rq.DeleteSnapshots([1]), ask=Asker(driver)) == rq.Answer()


def test_the_newest_is_refused_and_so_is_what_a_checkpoint_in_flight_builds_on() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    with pytest.raises(LocationError, match="chk-3 is the newest snapshot"):
        request_change(store, rq.DeleteSnapshots([2, 3]), ask=Asker(driver))
    in_flight = driver.trigger()
    # It completes first. Then 3 is old, but still a base.
    driver.feed(SnapshotRequested(Alignment.UNALIGNED, ticket=1))
    driver.acknowledge(in_flight + 1)
    driver.feed(SnapshotRequested(Alignment.UNALIGNED, ticket=2))
    works, driver.works = driver.works, []
    for work in works:
        event = driver.effects.execute(work)
        if event is not None:
            driver.feed(event)
    driver.effects.execute(driver.works.pop(0))  # logged; the brain has not heard of it
    assert existing(store)[-1] == in_flight + 1
    with pytest.raises(LocationError, match="that is being taken builds on chk-3"):
        request_change(store, rq.DeleteSnapshots([1, 3]), ask=Asker(driver))
    assert existing(store) == [1, 2, 3, in_flight + 1], "all or none"


def test_a_driver_collects_orphans_and_spares_what_is_in_flight() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    orphan = "data/0-1-0.arrows"
    store.files[orphan] = b"12345"
    in_flight = driver.trigger()
    captured = f"data/1-{in_flight}-0-state.arrows"
    store.files[captured] = b"rows"
    preview = ownership.preview_collection(store, ask=Asker(driver))
    assert orphan in store.files
    assert request_change(store, rq.CollectOrphans(), ask=Asker(driver)) == preview == rq.Answer(files=1, bytes=5)
    assert orphan not in store.files
    assert captured in store.files


def test_a_snapshot_is_taken_once_and_whoever_asked_hears_its_id() -> None:
    store = MemoryStore()
    driver = a_driver(store, 1)
    heard: list[JobEvent | None] = []

    def sleep(seconds: float) -> None:
        heard.append(look(driver))
        if len(heard) == 3:
            driver.effects.execute(AnswerTake(TOKEN, "chk-2"))

    wish = rq.TakeSnapshot("mine", "why", "aligned", 1500)
    answer = rq.ask(store, wish, TOKEN, clock=lambda: 100.0 * len(heard), sleep=sleep, claim_timeout_s=250.0)
    assert answer == rq.Answer(snapshot="chk-2")
    assert heard == [TakesRequested(((TOKEN, wish),)), None, None], "once, however long it takes"
    assert requests_of(store) == []


def test_who_asked_waits_longer_once_the_request_is_in_hand_but_not_for_ever() -> None:
    store = MemoryStore()
    asker = Asker(a_driver(store, 1))
    with pytest.raises(LocationError, match="took the request in hand, but has not answered within 900 s"):
        asker(store, rq.TakeSnapshot(), TOKEN)
    assert asker.now_s > rq.ANSWER_TIMEOUT_S


# -- nobody answers ----------------------------------------------------


def test_a_request_that_nobody_took_in_hand_is_never_carried_out() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    with pytest.raises(LocationError, match=r"no driver answers at this location.*--force"):
        request_change(store, rq.DeleteSnapshots([1]), ask=Asker())
    assert look(driver) is None
    assert existing(store) == [1, 2, 3]
    assert requests_of(store) == []


@pytest.mark.parametrize("operation", ["list", "create_if_absent", "size", "read"])
def test_a_request_that_is_withdrawn_while_the_driver_looks_is_decided_once(operation: str) -> None:
    store = MemoryStore()
    driver = a_driver(store)
    rq.create_file(store, TOKEN, rq.REQUEST, rq.Request(1, rq.DeleteSnapshots([1])))
    withdrawn = []

    def withdraw(effect: Effect) -> None:
        if effect.operation == operation and effect.path.startswith("requests") and effect.phase == "before":
            store.hook = None
            withdrawn.append(rq.create_file(store, TOKEN, rq.CLAIM, rq.Claim(rq.BY_REQUESTER)))
            if withdrawn[0]:
                rq.remove_files(store, TOKEN)

    store.hook = withdraw
    look(driver)
    assert existing(store) == ([1, 2, 3] if withdrawn == [True] else [2, 3])
    assert requests_of(store) == [] or withdrawn == [False]


def test_a_request_that_is_taken_in_hand_at_the_last_moment_is_waited_for() -> None:
    store = MemoryStore()
    driver = a_driver(store)

    def look_first(effect: Effect) -> None:
        if effect.operation == "create_if_absent" and effect.path.endswith(rq.CLAIM):
            store.hook = None
            look(driver)

    store.hook = look_first
    assert request_change(store, rq.DeleteSnapshots([1]), ask=Asker()).files > 0
    assert existing(store) == [2, 3]


def test_a_take_needs_a_running_query_and_is_not_forced() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    with pytest.raises(LocationError, match=r"no query runs at this location.*no driver answers here"):
        request_snapshot(store, rq.TakeSnapshot(), ask=Asker())
    end(driver)
    asker = Asker()
    with pytest.raises(LocationError, match="no query runs at this location: only"):
        request_snapshot(store, rq.TakeSnapshot(), ask=asker)
    assert asker.asked == 0
    with pytest.raises(LocationError, match="no query has run"):
        request_snapshot(MemoryStore(), rq.TakeSnapshot(), ask=asker)


def test_nobody_waits_for_a_driver_that_ends_meanwhile() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    asker = Asker()

    def ends(seconds: float) -> None:
        asker.now_s += seconds
        if asker.now_s > 1.5 and not SnapshotLog(store).refresh().ended:
            end(driver)

    asker.sleep = ends  # type: ignore[method-assign]
    with pytest.raises(LocationError, match="no query runs at this location"):
        request_snapshot(store, rq.TakeSnapshot(), ask=asker)
    assert 1.5 < asker.now_s <= 1.6 + rq.LOG_POLL_S < rq.CLAIM_TIMEOUT_S
    assert requests_of(store) == []


# -- the verb itself owns the location ----------------------------------------------------


def test_where_the_last_driver_has_said_that_it_ended_nobody_is_asked() -> None:
    store, target = MemoryStore(), Target()
    driver = a_driver(store, target=target)
    end(driver)
    before = SnapshotLog(store).refresh()
    assert before.ended
    asker = Asker()
    assert request_change(store, rq.DeleteSnapshots([1]), ask=asker).files > 0
    assert asker.asked == 0
    after = SnapshotLog(store).refresh()
    assert after.ended
    assert [record.checkpoint for record in after.lineage] == [2, 3]
    assert (after.committed_epoch, after.next_checkpoint) == (before.committed_epoch, before.next_checkpoint)
    successor = Driver(store, target, "B", retained=100)
    ready = successor.start()
    assert ready.restored is not None
    assert ready.restored.checkpoint == 3
    assert successor.checkpoint() == 4
    assert not check_location(store, target).ended


def test_force_fences_a_driver_that_does_not_answer() -> None:
    store, target = MemoryStore(), Target()
    driver = a_driver(store, target=target)
    store.files[GARBAGE] = b"123"
    asker = Asker()
    assert request_change(store, rq.CollectOrphans(), force=True, ask=asker) == rq.Answer(files=1, bytes=3)
    assert asker.asked == 1, "it is asked first"
    checkpoint = driver.trigger()
    driver.acknowledge(checkpoint)
    with pytest.raises(Fenced):
        driver.work()
    assert [record.checkpoint for record in check_location(store, target).lineage] == [1, 2, 3]


def test_force_asks_a_driver_that_runs_and_leaves_it_alone() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    request_change(store, rq.DeleteSnapshots([1]), force=True, ask=Asker(driver))
    assert existing(store) == [2, 3]
    assert check_location(store, driver.committer.target).owner == 1


def test_a_driver_that_starts_before_a_verb_takes_the_location_over_is_asked() -> None:
    store, target = MemoryStore(), Target()
    end(a_driver(store, target=target))
    rival = Driver(store, target, "B", retained=100)
    listings = 0

    def start_rival(effect: Effect) -> None:
        nonlocal listings
        listings += effect.operation == "list"
        if listings == 2:  # the first was to see whether anybody runs
            store.hook = None
            rival.start()

    store.hook = start_rival
    request_change(store, rq.DeleteSnapshots([1]), ask=Asker(rival))
    assert existing(store) == [2, 3]
    assert rival.checkpoint() == 4, "it was not fenced"


def test_a_dry_run_tells_what_goes_and_changes_nothing() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    store.files["data/1-9-0.arrows"] = b"123"  # of a checkpoint that was never complete
    end(driver)
    before = dict(store.files)
    deletion, collected = ownership.preview_deletion(store, [1, 2]), ownership.preview_collection(store, ask=Asker())
    assert store.files == before
    answer = request_change(store, rq.DeleteSnapshots([1, 2]))
    assert (len(deletion.files), deletion.bytes) == (answer.files, answer.bytes)
    assert not set(deletion.files) & set(store.files)
    assert request_change(store, rq.CollectOrphans()) == collected == rq.Answer(files=1, bytes=3)


def test_references_that_are_known_are_not_read_again_and_count_as_much() -> None:
    store, target = MemoryStore(), Target()
    end(a_driver(store, target=target))
    catalog = Catalog(store)
    records = SnapshotLog(store).refresh().snapshots
    known = CachedLocation({record.metadata.checksum: measure_snapshot(catalog.read(record)) for record in records})
    deletion = ownership.preview_deletion(store, [1])
    kept = {path: data for path, data in store.files.items() if path.endswith("metadata.json")}
    for path in kept:
        del store.files[path]
    assert set(ownership.preview_deletion(store, [1], known).files) == set(deletion.files)
    with pytest.raises(LocationError, match=r"chk-\d/metadata\.json is missing or damaged"):
        request_change(store, rq.DeleteSnapshots([1]))
    request_change(store, rq.DeleteSnapshots([1]), known=known)
    assert request_change(store, rq.CollectOrphans(), known=known).files == 0
    store.files |= {path: data for path, data in kept.items() if "chk-1/" not in path}
    assert [record.checkpoint for record in check_location(store, target).snapshots] == [2, 3]


def test_what_a_verb_refuses_leaves_the_location_as_ended_as_it_was() -> None:
    store = MemoryStore()
    end(a_driver(store))
    with pytest.raises(LocationError, match="chk-3 is the newest"):
        request_change(store, rq.DeleteSnapshots([3]))
    assert SnapshotLog(store).refresh().ended
    assert existing(store) == [1, 2, 3]


def test_a_damaged_snapshot_can_be_deleted_and_spares_what_others_need() -> None:
    store, target = MemoryStore(), Target()
    end(a_driver(store, target=target))
    store.files["snapshots/chk-2/metadata.json"] = b"{}"
    with pytest.raises(LocationError, match=r"chk-2/metadata\.json"):
        request_change(store, rq.DeleteSnapshots([1]))
    assert existing(store) == [1, 2, 3]
    request_change(store, rq.DeleteSnapshots([2]))
    request_change(store, rq.CollectOrphans())
    assert [record.checkpoint for record in check_location(store, target).snapshots] == [1, 3]
    assert not [path for path in store.files if path.startswith("data/1-2-")]


def test_names_are_ids_or_labels_and_a_wrong_one_is_named() -> None:
    store = MemoryStore()
    driver = a_driver(store, 1)
    for ticket in (1, 2):
        driver.feed(SnapshotRequested(Alignment.UNALIGNED, "twice", ticket=ticket))
        driver.acknowledge(driver.core.coordinator.in_flight[-1])
        driver.work()
    driver.checkpoint()
    view = SnapshotLog(store).refresh()
    assert choose_deletable("there", view, ["chk-2", "chk-1", "chk-2"]) == [1, 2]
    with pytest.raises(LocationError, match="there is no snapshot 'chk-9';"):
        choose_deletable("there", view, ["chk-1", "chk-9"])
    with pytest.raises(LocationError, match=r"label 'twice'; .*chk-2, chk-3"):
        choose_deletable("there", view, ["twice"])
    with pytest.raises(LocationError, match="there is no snapshot '';"):
        choose_deletable("there", view, [""])


# -- the log ----------------------------------------------------


def test_only_an_orderly_end_is_one_and_entries_without_the_newer_fields_mean_what_they_meant() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    assert not SnapshotLog(store).refresh().ended
    end(driver)
    assert SnapshotLog(store).refresh().ended
    old = {"type": "epoch-committed", "generation": 1, "epoch": 3, "reserved_until": 65}
    assert not msgspec.convert(old, EpochCommitted).ended
    complete = {"type": "snapshot-complete", "generation": 1, "checkpoint": 1, "requested": True, "label": "mine"}
    complete |= {"metadata": {"path": "p", "length": 1, "checksum": "c"}, "committed_epoch": 0, "reserved_until": 65}
    assert msgspec.convert(complete, SnapshotComplete).note == ""
    assert not LogView().ended


def test_a_summary_at_the_end_of_a_verb_does_not_hide_that_it_ended() -> None:
    store = MemoryStore()
    end(a_driver(store, 70))
    request_change(store, rq.DeleteSnapshots(list(range(1, 70))))
    view = SnapshotLog(store).refresh()
    assert view.last_summary > 140
    assert view.ended
    assert existing(store) == [70]


# -- what is not to be trusted ----------------------------------------------------


def sealed(verb: object, version: int = 1) -> bytes:
    return seal_envelope({"format_version": version, "verb": verb})


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe{", "cannot be read|not JSON"),
        (b"[" * 60_000, "RecursionError|not JSON"),
        (b"9" * 60_000, "cannot be read|not JSON"),
        (b'{"body": NaN, "checksum": ""}', "is not JSON"),
        (b'{"body": {}, "checksum": "0"}', "does not match its checksum"),
        (b"x" * (rq.MAX_BYTES + 1), "bytes, more than"),
        (sealed({"type": "rename", "checkpoints": [1]}), "rename"),
        (sealed({"type": "delete", "checkpoints": [1]}, version=3), "format version 3, the driver reads 2"),
        (sealed({"type": "take", "format": "parquet"}, version=2), "regex"),
        (sealed({"type": "delete", "checkpoints": ["../1"]}), "int"),
        (sealed({"type": "delete", "checkpoints": [-1]}), ">= 1"),
        (sealed({"type": "delete", "checkpoints": []}), "length"),
        (sealed({"type": "delete", "checkpoints": [1] * (rq.MAX_IDS + 1)}), "length"),
        (sealed({"type": "take", "label": "x" * 201}), "length"),
        (sealed({"type": "take", "note": "x" * 2001}), "length"),
        (sealed({"type": "take", "alignment": "aligned\n; rm"}), "regex"),
        (sealed({"type": "take", "timeout_ms": -1}), ">= 0"),
        (sealed(["take"]), "object"),
    ],
)
def test_what_is_no_request_is_refused_with_a_line_and_the_driver_goes_on(content: bytes, refusal: str) -> None:
    store = MemoryStore()
    driver = a_driver(store)
    store.files[f"requests/{TOKEN}.json"] = content
    assert look(driver) is None
    answer = rq.read_file(store, TOKEN, rq.ANSWER, rq.Answer)
    assert re.search(refusal, answer.refusal)
    assert len(answer.refusal) < 1000
    assert existing(store) == [1, 2, 3]
    driver.checkpoint()


def test_files_that_are_not_named_as_requests_are_nobodys_business() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    strange = [f"requests/{name}" for name in ("README", "x.json", f"{TOKEN.upper()}.json", f"{TOKEN}.json.tmp")]
    for path in strange:
        store.files[path] = sealed({"type": "delete", "checkpoints": [1]})
    before = dict(store.files)
    assert look(driver) is None
    assert store.files == before


def test_one_look_takes_a_bounded_number_in_hand_and_the_next_goes_on() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    tokens = [f"{number:032x}" for number in range(MAX_REQUESTS + 3)]
    for token in tokens:
        rq.create_file(store, token, rq.REQUEST, rq.Request(1, rq.TakeSnapshot()))
    looks = [look(driver) for _ in range(3)]
    assert [[token for token, _ in event.takes] for event in looks if isinstance(event, TakesRequested)] == [
        tokens[:MAX_REQUESTS],
        tokens[MAX_REQUESTS:],
    ]


def test_a_query_that_ends_refuses_what_a_last_look_has_found() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    for token in (TOKEN, "b" * 32):
        rq.create_file(store, token, rq.REQUEST, rq.Request(1, rq.TakeSnapshot()))
    assert isinstance(look(driver), TakesRequested), "its answer is lost"
    driver.effects.execute(AnswerTake(TOKEN, "chk-2"))
    driver.effects.refuse_takes("the query has ended")
    assert rq.read_file(store, TOKEN, rq.ANSWER, rq.Answer) == rq.Answer("", "chk-2")
    refusal = rq.read_file(store, "b" * 32, rq.ANSWER, rq.Answer).refusal
    assert refusal == "the query has ended; `penstock snapshot list` tells whether it was taken before that"


def test_leftovers_of_those_who_asked_and_died_go_after_a_while() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    now_ms = 5_000_000
    desk = RequestHandler(store, lambda: now_ms)
    owned = OwnedLocation(store, driver.effects._log, driver.effects._catalog)
    rq.create_file(store, TOKEN, rq.REQUEST, rq.Request(1, rq.DeleteSnapshots([1])))
    withdrawn, bare = "f" * 32, "e" * 32
    rq.create_file(store, withdrawn, rq.REQUEST, rq.Request(1, rq.DeleteSnapshots([2])))
    rq.create_file(store, withdrawn, rq.CLAIM, rq.Claim(rq.BY_REQUESTER))
    rq.create_file(store, bare, rq.CLAIM, rq.Claim(rq.BY_OWNER))
    desk.handle_requests(owned)
    now_ms += ANSWER_KEPT_MS - 1
    desk.handle_requests(owned)
    assert len(requests_of(store)) == 6
    now_ms += ANSWER_KEPT_MS
    desk.handle_requests(owned)
    assert requests_of(store) == []
    assert existing(store) == [2, 3]


# -- a driver that ends in between ----------------------------------------------------


def test_a_successor_redoes_a_deletion_and_refuses_a_snapshot_that_another_driver_had_in_hand() -> None:
    store, target = MemoryStore(), Target()
    a_driver(store, target=target)
    for token, verb in (("a" * 32, rq.DeleteSnapshots([1])), ("b" * 32, rq.TakeSnapshot("mine"))):
        rq.create_file(store, token, rq.REQUEST, rq.Request(1, verb))
        rq.create_file(store, token, rq.CLAIM, rq.Claim(rq.BY_OWNER))
    successor = Driver(store, target, "B", retained=100)
    successor.start()
    assert look(successor) is None
    assert existing(store) == [2, 3]
    assert rq.read_file(store, "a" * 32, rq.ANSWER, rq.Answer).refusal == ""
    assert rq.read_file(store, "b" * 32, rq.ANSWER, rq.Answer).refusal == INTERRUPTED


def test_a_driver_that_lost_the_location_answers_nothing() -> None:
    store, target = MemoryStore(), Target()
    driver = a_driver(store, target=target)
    Driver(store, target, "B").start()
    rq.create_file(store, TOKEN, rq.REQUEST, rq.Request(1, rq.CollectOrphans()))
    with pytest.raises(Fenced):
        look(driver)
    assert requests_of(store) == [f"requests/{TOKEN}.json"]


def test_a_snapshot_in_hand_survives_a_look_in_which_the_store_fails() -> None:
    store = MemoryStore()
    driver = a_driver(store, 1)
    rq.create_file(store, "a" * 32, rq.REQUEST, rq.Request(1, rq.TakeSnapshot("mine")))
    rq.create_file(store, "b" * 32, rq.REQUEST, rq.Request(1, rq.CollectOrphans()))

    def fail(effect: Effect) -> None:
        if effect.path == f"requests/{'b' * 32}.answer.json":
            raise OSError(28, "No space left on device")

    store.hook = fail
    assert isinstance(look(driver), CollectionFailed)
    store.hook = None
    assert look(driver) == TakesRequested((("a" * 32, rq.TakeSnapshot("mine")),))
