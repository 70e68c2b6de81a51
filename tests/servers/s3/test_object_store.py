"""S3 locations against a real S3 server: the promises of every store, and what is its own."""

from __future__ import annotations

import logging
import pickle
import sys
import threading
from collections.abc import Callable

import pytest

from penstock.errors import CorruptSnapshot, LocationError
from penstock.snapshots.history.reading import History
from penstock.snapshots.history.segment_writer import SegmentWriter
from penstock.snapshots.history.segments import list_segments
from penstock.snapshots.location import existing_location, open_location
from penstock.snapshots.store import object_store
from penstock.snapshots.store.object_store import BUFFER_BYTES, PART_BYTES, S3Store
from penstock.snapshots.store.stores import store_at
from tests.support.s3_server import PAGE, SECRET, S3Server, client
from tests.support.snapshots.history_kit import captures, entry
from tests.support.snapshots.store_kit import StoreContract, contend_in_processes, contend_in_threads

pytestmark = pytest.mark.cluster


@pytest.fixture
def location(s3: S3Server) -> str:
    return s3.location()


@pytest.fixture
def store(s3: S3Server, location: str) -> S3Store:
    return S3Store(location, s3.access())


class TestS3Store(StoreContract):
    @pytest.fixture(params=["", "/with a space/ümlaut+&%"])
    def store(self, request: pytest.FixtureRequest, s3: S3Server) -> S3Store:
        return S3Store(f"{s3.location()}{request.param}", s3.access())


def test_of_many_threads_exactly_one_creates(s3: S3Server, location: str) -> None:
    contend_in_threads(lambda: S3Store(location, s3.access()), 8, 10)


def test_of_processes_exactly_one_creates(s3: S3Server, location: str) -> None:
    first, second = contend_in_processes(location, 2, 60, s3.environment())
    assert sorted(first + second) == list(range(60))


def uploads(s3: S3Server, store: S3Store) -> list[str]:
    """Those at this location: other tests abandon theirs in the same bucket."""
    here = f"{store.root.removeprefix(f's3://{s3.bucket}/')}/"
    keys = [one["Key"] for one in client(s3).list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])]
    return [key for key in keys if key.startswith(here)]


def test_a_large_file_is_streamed_and_shows_when_it_is_closed(s3: S3Server, store: S3Store) -> None:
    block = bytes(range(256)) * (BUFFER_BYTES // 256)
    file = store.create("data/large")
    for _ in range(20):
        file.write(block)
        assert len(file._buffer) < BUFFER_BYTES  # type: ignore[attr-defined]
    file.write(b"end")
    assert len(uploads(s3, store)) == 1
    assert store.size("data/large") is None
    assert store.list("data") == []
    file.close()
    assert uploads(s3, store) == []
    assert store.size("data/large") == 20 * BUFFER_BYTES + 3
    assert store.read_range("data/large", 19 * BUFFER_BYTES, 1 << 30) == block + b"end"
    assert store.read_range("data/large", 1, 20 * BUFFER_BYTES)[:256] == bytes(range(1, 256)) + b"\0"
    assert store.read("data/large") == block * 20 + b"end"


def test_an_upload_that_is_abandoned_leaves_nothing(s3: S3Server, store: S3Store) -> None:
    file = store.create("data/large")
    file.write(b"x" * (2 * PART_BYTES))
    assert len(uploads(s3, store)) == 1
    file.abandon()
    assert uploads(s3, store) == []
    assert store.list("data") == []


def test_a_listing_has_many_pages(store: S3Store) -> None:
    paths = sorted(f"data/{number}" for number in range(2 * PAGE + 10))
    pending = list(paths)

    def fill() -> None:
        while pending:
            store.create_if_absent(pending.pop(), b"")

    threads = [threading.Thread(target=fill) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.list("data") == paths
    assert store.list("data", after=paths[len(paths) // 3]) == paths[len(paths) // 3 + 1 :]
    assert store.sizes(paths) == dict.fromkeys(paths, 0)
    store.delete_all(paths)
    assert store.list("data") == []


def test_the_history_of_checkpoints_is_kept_there_as_in_a_folder(store: S3Store) -> None:
    keeper = SegmentWriter(store)
    for number in range(1, 41):
        keeper.append([entry(number)])
        keeper.compact()
    assert len(list_segments(store)) < 40
    assert [one.checkpoint for one in History(store).page(31, 20)] == list(range(30, 10, -1))
    found = History(store).find(7)
    assert found is not None
    assert found.subtasks == tuple(captures(7))


def test_locations_are_opened_told_apart_and_named(s3: S3Server, location: str) -> None:
    store = open_location(location, s3.access())
    assert store.root == location
    assert store.top_names() == [], "the probe is gone"
    with pytest.raises(LocationError, match=rf"startFrom {location} is empty"):
        existing_location("startFrom", location, s3.access())
    store.create_if_absent("query.json", b"{}")
    assert open_location(f"{location}/".replace("s3:", "s3a:"), s3.access()).root == location
    assert existing_location("startFrom", location, s3.access()).root == location


def test_somebody_elses_objects_are_left_alone(s3: S3Server, location: str) -> None:
    there = S3Store(location, s3.access())
    there.create_if_absent("thesis.docx", b"x")
    with pytest.raises(LocationError, match=rf"{location} holds files that are not Penstock's \(thesis\.docx\)"):
        open_location(location, s3.access())
    assert there.top_names() == ["thesis.docx"]
    spark = S3Store(f"{location}/spark", s3.access())
    for path in ("metadata", "offsets/0", "commits/0"):
        spark.create_if_absent(path, b"x")
    with pytest.raises(LocationError, match="Spark's own Structured Streaming"):
        open_location(spark.root, s3.access())
    assert spark.top_names() == ["commits", "metadata", "offsets"]


def test_a_consoles_folder_is_no_file(s3: S3Server, location: str) -> None:
    key = location.removeprefix(f"s3://{s3.bucket}/")
    client(s3).put_object(Bucket=s3.bucket, Key=f"{key}/", Body=b"")
    store = open_location(location, s3.access())
    client(s3).put_object(Bucket=s3.bucket, Key=f"{key}/data/", Body=b"")
    assert [store.list("data"), store.list("log")] == [[], []]


def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    for what in (open_location, lambda *_: existing_location("location", "s3://no-such-bucket/x", s3.access())):
        with pytest.raises(LocationError, match=r"s3://no-such-bucket/x cannot be.*NoSuchBucket"):
            what("s3://no-such-bucket/x", s3.access())


def test_a_server_that_is_not_there_is_named(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 1)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(LocationError, match=r"s3://bucket/x cannot be used.*127\.0\.0\.1:9") as caught:
        open_location("s3://bucket/x", s3.access("http://127.0.0.1:9"))
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value) + caplog.text


def test_a_huge_object_is_not_read_whole(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create_if_absent("log/1", b"x" * 11)
    monkeypatch.setattr(object_store, "MAX_READ_BYTES", 10)
    with pytest.raises(CorruptSnapshot, match="log/1 has 11 bytes"):
        store.read("log/1")


def test_without_the_extra_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LocationError, match=r"s3://bucket/x: object stores need obstore.*pip install 'penstock\[s3\]'"):
        open_location("s3://bucket/x")


@pytest.mark.parametrize(
    "location", ["s3://key:hush@bucket/x", "s3:///x", "s3:bucket", "s3://bucket/a/../b", "s3://bucket/x?versionId=1"]
)
def test_what_is_no_location_is_said_to_be_none(location: str) -> None:
    with pytest.raises(LocationError) as caught:
        store_at(location)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("show", [repr, str, lambda store: repr(vars(store)), lambda store: str(pickle.dumps(store))])
def test_no_secret_shows_nor_travels(s3: S3Server, location: str, show: Callable[[object], str]) -> None:
    store = store_at(location, s3.access())
    assert SECRET not in show(store)


def test_what_was_pickled_goes_by_the_environment(
    s3: S3Server, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    store.create_if_absent("log/1", b"x")
    again = pickle.loads(pickle.dumps(store))
    assert again.root == store.root
    assert again.read("log/1") == b"x"
