"""S3 locations behind a network and a server that fail: what is not known is said not to be known."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.errors import Fenced, LocationError
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.location import claim_identity, identity_of, open_location
from penstock.snapshots.log.entries import GenerationOpened
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store import object_store
from penstock.snapshots.store.object_store import PART_BYTES, S3Store
from penstock.snapshots.store.store import DataFile
from tests.support.faulty_proxy import Fault, FaultyProxy, Plan, Seen
from tests.support.s3_server import SECRET, S3Server, client
from tests.support.snapshots.snapshot_kit import graph, tokens
from tests.support.snapshots.store_kit import contend_in_threads

pytestmark = pytest.mark.cluster


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def store(s3: S3Server, proxy: FaultyProxy) -> S3Store:
    return S3Store(s3.location(), s3.access(proxy.endpoint))


def in_turn(method: str, *faults: Fault | None, ends: str = "") -> Plan:
    """The first requests of a method meet these faults, all others none."""
    left, lock = list(faults), threading.Lock()

    def plan(seen: Seen) -> Fault | None:
        with lock:
            return left.pop(0) if left and seen.method == method and seen.path.endswith(ends) else None

    return plan


def always(method: str, fault: Fault, ends: str = "") -> Plan:
    return lambda seen: fault if seen.method == method and seen.path.endswith(ends) else None


# -- create_if_absent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.RESET, Fault.SLOW, Fault.CONFLICT])
def test_what_did_not_happen_is_tried_again(proxy: FaultyProxy, store: S3Store, fault: Fault) -> None:
    proxy.plan = in_turn("PUT", fault, fault)
    assert store.create_if_absent("log/1", b"mine")
    assert store.read("log/1") == b"mine"


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE_AFTER, Fault.RESET_AFTER])
def test_what_may_be_ours_is_not_said_to_be_somebody_elses(proxy: FaultyProxy, store: S3Store, fault: Fault) -> None:
    proxy.plan = in_turn("PUT", fault)
    with pytest.raises(OSError, match=r"not known whether.*log/1"):
        store.create_if_absent("log/1", b"mine")
    assert store.read("log/1") == b"mine", "reading it back tells"
    assert proxy.count("PUT") == 2, "the library itself did not try again"


def test_an_answer_that_takes_too_long_is_no_answer(
    s3: S3Server, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "CREATE_TIMEOUT_S", 0.1)
    proxy.slow_s = 1.0
    proxy.plan = in_turn("PUT", Fault.SLOW)
    store = S3Store(s3.location(), s3.access(proxy.endpoint))
    try:
        assert store.create_if_absent("log/1", b"mine"), "the second try may have been the quicker one"
    except OSError as error:
        assert "not known whether" in str(error)  # noqa: PT017 - either of them is right
    assert store.read("log/1") == b"mine"


def test_a_conflict_of_which_nobody_has_the_object_is_no_no(
    proxy: FaultyProxy, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all of several drivers would take another one for the owner."""
    monkeypatch.setattr(object_store, "CREATE_PAUSES_S", (0.0, 0.01))
    proxy.plan = always("PUT", Fault.CONFLICT)
    with pytest.raises(OSError, match=r"not known whether"):
        store.create_if_absent("log/1", b"mine")
    assert store.size("log/1") is None


def test_somebody_elses_is_somebody_elses(s3: S3Server, proxy: FaultyProxy, store: S3Store) -> None:
    S3Store(store.root, s3.access()).create_if_absent("log/1", b"theirs")
    assert not store.create_if_absent("log/1", b"mine")
    proxy.plan = in_turn("PUT", Fault.UNAVAILABLE)
    with pytest.raises(OSError, match="not known whether"):
        store.create_if_absent("log/1", b"mine")
    assert store.read("log/1") == b"theirs"


def test_contenders_behind_faults_never_win_both(s3: S3Server, proxy: FaultyProxy) -> None:
    location = s3.location()
    count = iter(range(10_000))

    def plan(seen: Seen) -> Fault | None:
        kinds = [Fault.UNAVAILABLE, None, Fault.CONFLICT, None, Fault.RESET]
        return kinds[next(count) % len(kinds)] if seen.method == "PUT" else None

    proxy.plan = plan

    def opened() -> S3Store:
        return _Patient(location, s3.access(proxy.endpoint))

    contend_in_threads(opened, 3, 6)


class _Patient(S3Store):
    """Reads back what is not known, as every caller has to: contents are the contenders' own."""

    def create_if_absent(self, path: str, data: bytes) -> bool:
        while True:
            try:
                return super().create_if_absent(path, data)
            except OSError:
                if self.exists(path):
                    return self.read(path) == data


# -- everything else --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.RESET, Fault.CUT, Fault.SLOW])
def test_reads_are_repeated(proxy: FaultyProxy, store: S3Store, fault: Fault) -> None:
    content = bytes(range(256)) * 4000
    file = store.create("data/1")
    file.write(content)
    file.close()
    proxy.plan = in_turn("GET", fault)
    assert store.read("data/1") == content
    proxy.plan = in_turn("GET", fault)
    assert store.read_range("data/1", 1000, 500_000) == content[1000:501_000]
    proxy.plan = in_turn("GET", fault)
    assert store.list("data") == ["data/1"]
    proxy.plan = in_turn("HEAD", fault)
    assert store.size("data/1") == len(content)


@pytest.mark.parametrize(
    "fault", [Fault.UNAVAILABLE, Fault.UNAVAILABLE_AFTER, Fault.RESET, Fault.SLOW], ids=lambda fault: fault.name
)
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_data_file_comes_through(proxy: FaultyProxy, store: S3Store, method: str, fault: Fault) -> None:
    """Parts are put, and an upload is begun and completed by a post."""
    proxy.plan = in_turn(method, fault, None, fault)
    content = bytes(range(256)) * ((2 * PART_BYTES + 5000) // 256)
    file = store.create("data/1")
    try:
        _finish(file, content)
    except OSError:
        file.abandon()  # an answer that got lost, about which nobody can tell: then nothing is there
        assert store.size("data/1") is None
        return
    assert store.read("data/1") == content


def _finish(file: DataFile, content: bytes) -> None:
    file.write(content)
    file.close()


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.RESET])
def test_a_data_file_that_cannot_be_written_is_not_there(
    s3: S3Server, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 1)
    store = S3Store(s3.location(), s3.access(proxy.endpoint))
    file = store.create("data/1")
    proxy.plan = lambda seen: fault if seen.method == "PUT" or "uploadId" in seen.query else None
    with pytest.raises(OSError, match=r"s3://.*data/1"):
        _finish(file, b"x" * (6 * PART_BYTES))
    proxy.plan = lambda seen: None
    file.abandon()
    assert S3Store(store.root, s3.access()).size("data/1") is None
    left = client(s3).list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])
    for one in left:  # what could not be aborted is for the bucket's rule, and no file
        client(s3).abort_multipart_upload(Bucket=s3.bucket, Key=one["Key"], UploadId=one["UploadId"])


def test_a_small_file_whose_end_got_lost_is_taken_back(
    s3: S3Server, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 0)
    store = S3Store(s3.location(), s3.access(proxy.endpoint))
    file = store.create("data/1")
    file.write(b"rows")
    proxy.plan = in_turn("PUT", Fault.RESET_AFTER)
    with pytest.raises(OSError, match="data/1"):
        file.close()
    file.abandon()
    assert store.size("data/1") is None


def test_the_server_is_asked_a_bounded_number_of_times(
    s3: S3Server, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 2)
    store = S3Store(s3.location(), s3.access(proxy.endpoint))
    proxy.plan = always("GET", Fault.UNAVAILABLE)
    with pytest.raises(OSError, match="SlowDown: Reduce your request rate") as caught:
        store.read("log/1")
    assert proxy.count("GET") == 3
    assert not isinstance(caught.value, FileNotFoundError)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_files_are_removed_by_few_requests(proxy: FaultyProxy, store: S3Store) -> None:
    paths = [f"data/{number}" for number in range(60)]
    for path in paths:
        store.create_if_absent(path, b"x")
    before = len(proxy.seen)
    store.delete_all(paths)
    assert store.sizes(paths) == {}
    assert len(proxy.seen) - before <= 3


# -- who rests on it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE_AFTER, Fault.RESET_AFTER, Fault.CONFLICT, Fault.UNAVAILABLE])
def test_the_log_knows_its_own_entries(proxy: FaultyProxy, store: S3Store, fault: Fault) -> None:
    log, rival = SnapshotLog(store, tokens("ours")), SnapshotLog(store, tokens("theirs"))
    rival.refresh()
    proxy.plan = in_turn("PUT", fault)
    log.append(GenerationOpened(1, 0, 1, 65, 0))
    with pytest.raises(Fenced):
        rival.append(GenerationOpened(1, 0, 1, 65, 0))
    assert rival.refresh().owner == 1


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE_AFTER, Fault.RESET_AFTER, Fault.CONFLICT, Fault.UNAVAILABLE])
def test_a_claim_knows_itself(proxy: FaultyProxy, store: S3Store, fault: Fault) -> None:
    proxy.plan = in_turn("PUT", fault)
    mine = identity_of(graph(), "mine")
    assert claim_identity(store, mine) is mine
    assert claim_identity(store, identity_of(graph(), "another")).query_id == "mine"


def test_a_request_that_may_have_been_put_is_withdrawn(
    proxy: FaultyProxy, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that got an error must not hear later that its request was carried out."""
    monkeypatch.setattr(object_store, "CREATE_PAUSES_S", (0.0,))
    proxy.plan = in_turn("PUT", Fault.RESET_AFTER)
    with pytest.raises(OSError, match="not known whether"):
        rq.ask(store, rq.CollectOrphans(), "0" * 32, claim_timeout_s=0)
    assert store.list(rq.FOLDER) == []


# -- probes -----------------------------------------------------------------------------------------------------------


def test_a_server_without_conditional_puts_is_refused(s3: S3Server, proxy: FaultyProxy) -> None:
    proxy.plan = always("PUT", Fault.UNCONDITIONAL)
    location = s3.location()
    with pytest.raises(LocationError, match=r"does not refuse to create an object that exists.*object-stores\.md"):
        open_location(location, s3.access(proxy.endpoint))
    assert S3Store(location, s3.access()).top_names() == [], "the probe is gone"


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.RESET_AFTER, Fault.CONFLICT])
def test_a_probe_that_meets_a_fault_is_repeated(s3: S3Server, proxy: FaultyProxy, fault: Fault) -> None:
    proxy.plan = in_turn("PUT", fault)
    assert open_location(s3.location(), s3.access(proxy.endpoint)).top_names() == []
