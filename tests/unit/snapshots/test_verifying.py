"""Verification: all damage is reported, by name; unused files are no damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.manifest import SectionRef
from penstock.snapshots.catalog import sections_of
from penstock.snapshots.commands import verifying
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.showing import show_snapshot
from penstock.snapshots.commands.verifying import Verification, verify_location
from penstock.snapshots.format.envelope import digest, seal_envelope
from penstock.snapshots.log.entries import MetadataRef
from penstock.snapshots.log.snapshot_log import SnapshotLog, entry_path
from penstock.snapshots.store.store import LocalStore
from tests.support.snapshots.location_kit import Kept, contents, flip


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Three snapshots; the later ones refer to what the first one has."""
    kept = Kept(tmp_path / "chk", 2)
    kept.put({key: key for key in range(400)})
    kept.snapshot()
    kept.snapshot("mine", in_flight=5)
    kept.put({1: 0})
    kept.snapshot()
    return kept


def verify(kept: Kept, snapshot: str = "") -> Verification:
    return verify_location(str(kept.location), snapshot)


def test_what_is_whole_is_said_to_be_and_not_touched(kept: Kept) -> None:
    before = contents(kept.location)
    told: list[tuple[int, int]] = []
    found = verify_location(str(kept.location), progress=lambda done, total: told.append((done, total)))
    assert contents(kept.location) == before
    assert (found.damage, found.orphans, found.unsettled) == ([], [], [])
    assert found.snapshots == 3
    assert found.log_entries == len(list((kept.location / "log").iterdir()))
    opened = open_location_to_read(str(kept.location))
    sections = {section for record in opened.view.snapshots for section in sections_of(opened.metadata(record))}
    assert (found.sections, found.bytes) == (len(sections), sum(section.length for section in sections))
    assert told[-1] == (found.bytes, found.bytes)


def test_a_section_is_read_once_however_many_snapshots_refer_to_it(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[str, int]] = []
    read = LocalStore.read_range

    def noted(self: LocalStore, path: str, offset: int, length: int) -> bytes:
        assert length <= 100, "and in pieces"
        ranges.append((path, offset))
        return read(self, path, offset, length)

    monkeypatch.setattr(LocalStore, "read_range", noted)
    monkeypatch.setattr(verifying, "PIECE_BYTES", 100)
    found = verify(kept)
    assert not found.damage
    assert len(set(ranges)) == len(ranges) > found.sections


@pytest.mark.parametrize("snapshot", ["", "chk-1", "mine"])
def test_all_damage_is_reported_with_the_snapshots_that_need_it(kept: Kept, snapshot: str) -> None:
    location = kept.location
    flip(location / "data" / "1-1-0-state.arrows", 300)
    (location / "data" / "1-1-1-state.arrows").unlink()
    inflight = location / "data" / "1-2-0.arrows"
    inflight.write_bytes(inflight.read_bytes()[:-1])
    flip(location / "snapshots" / "chk-3" / "metadata.json")
    flip(location / entry_path(1), 30)
    found = {(damage.path, tuple(damage.snapshots)) for damage in verify(kept, snapshot).damage}
    shared = {"": ("chk-1", "chk-2"), "chk-1": ("chk-1",), "mine": ("chk-2",)}[snapshot]
    expected = {
        (entry_path(1), ()),
        ("data/1-1-0-state.arrows", shared),
        ("data/1-1-1-state.arrows", shared),
    }
    if snapshot != "chk-1":
        expected.add(("data/1-2-0.arrows", ("chk-2",)))
    if not snapshot:
        expected.add(("snapshots/chk-3/metadata.json", ("chk-3",)))
        assert not verify(kept).unused_known, "what damaged metadata refers to is not known"
    assert found == expected


@pytest.mark.parametrize("path", ["query.json", entry_path(1)])
def test_missing_and_damaged_small_files_are_found(kept: Kept, path: str) -> None:
    flip(kept.location / path)
    assert [damage.path for damage in verify(kept).damage] == [path]


def test_a_log_with_gaps_strangers_and_contradictions(kept: Kept) -> None:
    log = kept.location / "log"
    count = len(list(log.iterdir()))
    (log / "notes.txt").write_text("x")
    last = json.loads((kept.location / entry_path(count)).read_bytes())["body"]
    shutil.copy(kept.location / entry_path(1), kept.location / entry_path(count + 1))
    forged = {**last, "seq": count + 3, "entry": {**last["entry"], "generation": 77}}
    (kept.location / entry_path(count + 3)).write_bytes(seal_envelope(forged))
    found = {damage.path: damage.problem for damage in verify(kept).damage}
    assert set(found) == {"log/notes.txt", entry_path(count + 1), entry_path(count + 2)}
    assert "holds entry 1" in found[entry_path(count + 1)]
    assert "missing" in found[entry_path(count + 2)]
    (kept.location / entry_path(count + 1)).unlink()
    (kept.location / entry_path(count + 3)).unlink()
    (kept.location / entry_path(count + 1)).write_bytes(seal_envelope({**forged, "seq": count + 1}))
    found = {damage.path: damage.problem for damage in verify(kept).damage}
    assert "contradicts the entries before it" in found[entry_path(count + 1)]


def test_a_forged_summary_is_found_and_a_true_one_bridges_a_broken_entry(kept: Kept) -> None:
    log = SnapshotLog(kept.store)
    first = log.refresh().head
    while log.refresh().last_summary == first:
        kept.snapshot()
    seq = log.view.last_summary
    assert not verify(kept).damage
    flip(kept.location / entry_path(2))
    assert [damage.path for damage in verify(kept).damage] == [entry_path(2)]
    flip(kept.location / entry_path(2))
    path = kept.location / entry_path(seq)
    body = json.loads(path.read_bytes())["body"]
    del body["entry"]["snapshots"][0]
    path.write_bytes(seal_envelope(body))
    (damage,) = verify(kept).damage
    assert damage.path == entry_path(seq)
    assert "summary that says something else" in damage.problem


def hostile_length(ref: SectionRef) -> SectionRef:
    return msgspec.structs.replace(ref, length=1 << 35)


def hostile_path(ref: SectionRef) -> SectionRef:
    return msgspec.structs.replace(ref, path="../../etc/passwd")


def hostile_offset(ref: SectionRef) -> SectionRef:
    return msgspec.structs.replace(ref, offset=-1)


def another_identity(ref: SectionRef) -> SectionRef:
    return msgspec.structs.replace(ref, identity=ref.identity + "0")


SECTION = "g1/c1/v1[0]/state/count-1/counts/0"


@pytest.mark.parametrize(
    ("forge", "text"),
    [
        (hostile_length, SECTION),
        (hostile_path, "'../../etc/passwd' is no data file"),
        (hostile_offset, "section.offset"),
        (another_identity, SECTION),
    ],
)
def test_forged_metadata_is_found_though_the_log_fits_it(
    kept: Kept, forge: Callable[[SectionRef], SectionRef], text: str
) -> None:
    """Checksums keep nobody out: whoever forges metadata forges the log entry as well."""
    opened = open_location_to_read(str(kept.location))
    metadata = opened.metadata(opened.record("chk-1"))
    subtask = metadata.slots[0].subtasks[1]
    entry = subtask.states[0]
    subtask.states[0] = msgspec.structs.replace(entry, section=forge(entry.section))
    rewrite(kept, 1, msgspec.json.encode(metadata))
    (damage,) = verify(kept, "chk-1").damage
    assert damage.snapshots == ["chk-1"]
    assert text in damage.problem


def test_metadata_of_another_snapshot_is_found(kept: Kept) -> None:
    rewrite(kept, 1, (kept.location / "snapshots" / "chk-2" / "metadata.json").read_bytes())
    (damage,) = verify(kept, "chk-1").damage
    assert damage.path == "snapshots/chk-1/metadata.json"
    assert "belongs to chk-2" in damage.problem


@pytest.mark.parametrize(
    ("forged", "text"),
    [
        ({"max_parallelism": 1 << 50}, f"{1 << 50} key groups"),
        ({"parallelism": 1 << 40}, "parallelism"),
    ],
)
def test_numbers_that_would_cost_memory_are_refused(kept: Kept, forged: dict[str, int], text: str) -> None:
    opened = open_location_to_read(str(kept.location))
    metadata = msgspec.structs.replace(opened.metadata(opened.record("chk-1")), **forged)  # type: ignore[arg-type]
    rewrite(kept, 1, msgspec.json.encode(metadata))
    (damage,) = verify(kept, "chk-1").damage
    assert text in damage.problem
    opened = open_location_to_read(str(kept.location))
    with pytest.raises(CorruptSnapshot, match=text):
        show_snapshot(opened, opened.record("chk-1"), 0, count_rows=True)


def rewrite(kept: Kept, checkpoint: int, data: bytes) -> None:
    """New metadata, and a log entry that fits it."""
    (kept.location / "snapshots" / f"chk-{checkpoint}" / "metadata.json").write_bytes(data)
    for path in sorted((kept.location / "log").iterdir()):
        body = json.loads(path.read_bytes())["body"]
        entry = body["entry"]
        if entry["type"] == "snapshot-complete" and entry["checkpoint"] == checkpoint:
            ref = MetadataRef(entry["metadata"]["path"], len(data), digest(data))
            entry["metadata"] = msgspec.to_builtins(ref)
            path.write_bytes(seal_envelope(body))


def test_unused_files_are_listed_and_no_damage(kept: Kept) -> None:
    data = kept.location / "data"
    (data / "1-2-9.arrows").write_bytes(b"x" * 11)  # of a checkpoint that is older than the newest
    (data / "1-99-0.arrows").write_bytes(b"x" * 12)  # of one that may be in flight
    (data / "1-98-0.arrows.tmp").write_bytes(b"x")
    found = verify(kept)
    assert not found.damage
    assert [(file.path, file.bytes, file.certain) for file in found.orphans] == [("data/1-2-9.arrows", 11, False)]
    assert [(file.path, file.bytes) for file in found.unsettled] == [("data/1-99-0.arrows", 12)]
    kept.player.end_generation()
    Kept(kept.location, 2)
    (data / "1-99-1.arrows").write_bytes(b"x" * 13)
    orphans = [(file.path, file.certain) for file in verify(kept).orphans]
    assert ("data/1-99-1.arrows", True) in orphans, "that Generation has ended"
    assert not verify(kept, "chk-1").orphans


def test_a_snapshot_that_is_deleted_while_it_is_verified_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path / "chk", retained=1)
    kept.put({1: 1})
    kept.snapshot()
    read = verifying.check_log

    def slow(store: LocalStore) -> object:
        checked = read(store)
        kept.put({1: 2})
        kept.snapshot()
        kept.snapshot()
        return checked

    monkeypatch.setattr(verifying, "check_log", slow)
    assert not (found := verify(kept)).damage
    assert found.unused_known


def test_an_unknown_snapshot_is_refused(kept: Kept) -> None:
    with pytest.raises(LocationError, match="no snapshot 'chk-9'; there are: chk-3, chk-2"):
        verify(kept, "chk-9")


def test_what_a_damaged_log_does_not_know_is_no_reason_to_hide_the_damage(kept: Kept) -> None:
    count = len(list((kept.location / "log").iterdir()))
    for seq in range(1, count + 1):
        flip(kept.location / entry_path(seq), 30)
    found = verify(kept, "chk-1").damage
    assert [damage.path for damage in found] == ["log/", *(entry_path(seq) for seq in range(1, count + 1))]
    assert "no snapshot 'chk-1'" in found[0].problem
