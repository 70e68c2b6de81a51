"""Blobs of discovery states: stored once, found again, gone when nothing refers to them."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.errors import CorruptSnapshot
from penstock.model.manifest import FORMAT_VERSION, SlotManifest, SnapshotMetadata, SourceManifest
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.format.blobs import Blob, BlobStore, extract_blobs, insert_blobs
from penstock.snapshots.log.entries import GenerationOpened, SnapshotComplete, SnapshotDeleted
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.retention import remove_orphans
from penstock.snapshots.store.store import MemoryStore


def blob(number: int) -> Blob:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"n": [number]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return Blob(sink.getvalue())


def metadata(checkpoint: int, state: Any, generation: int = 1) -> SnapshotMetadata:
    source = SourceManifest("source", 0, state, [])
    return SnapshotMetadata(
        FORMAT_VERSION, f"chk-{checkpoint}", "query", generation, checkpoint, "auto", False, "", 0, 2, 128,
        [SlotManifest(slot, []) for slot in range(2)], [source], next_batch=0,
    )  # fmt: skip


class Driver:
    """Log, catalog and blobs over one store, as the driver's hands use them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.log = SnapshotLog(self.store, iter(map(str, range(1000))).__next__)
        self.log.append(GenerationOpened(1, 0, 1, 100, 0))
        self.catalog = Catalog(self.store)
        self.blobs = BlobStore(self.store)
        self.unlogged: dict[int, tuple[SnapshotMetadata, Any]] = {}

    def write(self, checkpoint: int, state: Any) -> SnapshotMetadata:
        stored = self.blobs.write_blobs(metadata(checkpoint, state))
        self.catalog.check_origins(stored, self.log.view)
        self.unlogged[checkpoint] = stored, self.catalog.write(stored)
        return stored

    def complete(self, checkpoint: int) -> None:
        stored, ref = self.unlogged.pop(checkpoint)
        self.log.append(SnapshotComplete(1, checkpoint, False, ref, 0, 100, ""))
        self.blobs.snapshot_completed(stored)

    def delete(self, checkpoint: int) -> None:
        self.log.append(SnapshotDeleted(1, checkpoint))
        self.catalog.forget(checkpoint)

    def collect(self) -> list[str]:
        kept = [path for checkpoint in self.unlogged for path in self.catalog.known_files(checkpoint)]
        return remove_orphans(self.store, self.log.view, self.catalog, list(self.unlogged), kept)

    def restored(self) -> Any:
        chosen = self.catalog.choose_newest(self.log.view)
        assert chosen.metadata is not None
        return BlobStore(self.store).restore_blobs(chosen.metadata).sources[0].state


@pytest.fixture
def driver() -> Driver:
    return Driver()


def data_files(driver: Driver) -> list[str]:
    return driver.store.list("data")


def test_states_come_apart_and_together() -> None:
    state = {"a": [blob(1), 5, None, {"b": blob(2)}], "c": "x"}
    plain, blobs = extract_blobs(state)
    assert insert_blobs(msgspec.json.decode(msgspec.json.encode(plain)), [bytes(item) for item in blobs]) == state
    assert extract_blobs([1, {"a": 2}]) == ([1, {"a": 2}], [])
    assert extract_blobs(None) == (None, [])


def test_a_blob_is_stored_by_the_first_snapshot_that_has_it(driver: Driver) -> None:
    driver.write(1, {"segments": [blob(1)], "horizon": 1})
    driver.complete(1)
    driver.write(2, {"segments": [blob(1), blob(2)], "horizon": 2})
    driver.complete(2)
    driver.write(3, {"segments": [blob(1), blob(2)], "horizon": 3})
    driver.complete(3)
    assert data_files(driver) == ["data/1-1-2.arrows", "data/1-2-2.arrows"]
    assert driver.restored() == {"segments": [blob(1), blob(2)], "horizon": 3}
    assert all(isinstance(item, Blob) for item in driver.restored()["segments"])


def test_what_an_unfinished_snapshot_wrote_is_not_referred_to(driver: Driver) -> None:
    driver.write(1, [blob(1)])
    stored = driver.write(2, [blob(1)])
    assert [ref.path for ref in stored.sources[0].sections] == ["data/1-2-2.arrows"]


def test_files_go_when_no_snapshot_refers_to_them(driver: Driver) -> None:
    for checkpoint, state in ((1, [blob(1)]), (2, [blob(1), blob(2)]), (3, [blob(3)])):
        driver.write(checkpoint, state)
        driver.complete(checkpoint)
    driver.delete(1)
    assert driver.collect() == ["snapshots/chk-1/metadata.json"]
    driver.delete(2)
    assert driver.collect() == ["data/1-1-2.arrows", "data/1-2-2.arrows", "snapshots/chk-2/metadata.json"]
    assert driver.restored() == [blob(3)]


def test_files_that_a_written_snapshot_refers_to_stay_until_it_is_logged(driver: Driver) -> None:
    """Snapshot 3 was written on the base of 1; 2, which has a copy of its own, completes and 1 is given up."""
    driver.write(1, [blob(1)])
    driver.write(2, [blob(1)])
    driver.complete(1)
    driver.write(3, [blob(1)])
    driver.complete(2)
    driver.delete(1)
    driver.collect()
    driver.complete(3)
    assert driver.restored() == [blob(1)]


def test_an_older_snapshot_that_completes_late_is_no_base(driver: Driver) -> None:
    driver.write(1, [blob(1)])
    driver.write(2, [blob(1)])
    driver.complete(2)
    driver.complete(1)
    driver.delete(1)
    driver.collect()
    driver.write(3, [blob(1)])
    driver.complete(3)
    assert driver.restored() == [blob(1)]


def test_a_new_driver_refers_to_what_it_restored(driver: Driver) -> None:
    driver.write(1, [blob(1)])
    driver.complete(1)
    chosen = driver.catalog.choose_newest(driver.log.view).metadata
    assert chosen is not None
    fresh = BlobStore(driver.store)
    fresh.restore_blobs(chosen)
    stored = fresh.write_blobs(metadata(9, [blob(1)], generation=2))
    assert [ref.path for ref in stored.sources[0].sections] == ["data/1-1-2.arrows"]


def test_damage_is_found(driver: Driver) -> None:
    driver.write(1, [blob(1)])
    driver.complete(1)
    content = bytearray(driver.store.files["data/1-1-2.arrows"])
    content[-20] ^= 1
    driver.store.files["data/1-1-2.arrows"] = bytes(content)
    with pytest.raises(CorruptSnapshot, match="checksum"):
        driver.restored()
    del driver.store.files["data/1-1-2.arrows"]
    with pytest.raises(CorruptSnapshot, match="missing"):
        driver.restored()
