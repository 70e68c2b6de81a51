"""The set of files that were handed out: as a plain set would be, and small where little changes."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files.listing import FoundFile
from penstock.connectors.files.seen_files import SeenFiles
from penstock.snapshots.format.blobs import Blob
from tests.support.connectors.kits import stored_state
from tests.support.effort import some

HOUR_MS = 3_600_000


def found(name: str, modified_ms: int) -> FoundFile:
    return FoundFile(modified_ms, name, 1, modified_ms * 1_000_000)


def with_files(seen: SeenFiles, names: list[str], modified_ms: int = 0) -> SeenFiles:
    return seen.with_files(names, [found(name, modified_ms) for name in names])


@settings(max_examples=some(60))
@given(st.lists(st.tuples(st.lists(st.text(max_size=3), max_size=5, unique=True), st.integers(0, 10**4)), max_size=12))
def test_it_holds_what_was_added_and_is_not_too_old(looks: list[tuple[list[str], int]]) -> None:
    seen, model = SeenFiles(), dict[str, int]()
    for names, modified_ms in looks:
        fresh = [name for name in names if name not in model]
        seen = with_files(seen, fresh, modified_ms).without_old(5_000)
        model |= dict.fromkeys(fresh, modified_ms)
        seen = SeenFiles.restored(stored_state(seen.state()))
        horizon_ms = max(0, max(model.values(), default=0) - 5_000)
        assert seen.horizon_ms == horizon_ms
        held = dict(zip(model, seen.contains(list(model)).tolist(), strict=True))
        assert all(held[name] for name, at_ms in model.items() if at_ms >= horizon_ms)
    assert not seen.contains(["never added"]).any()


def test_a_set_keeps_what_it_had_when_another_is_made_from_it() -> None:
    first = with_files(SeenFiles(), ["a", "b"])
    with_files(first, ["c", "d", "e"])
    assert first.contains(["a", "b", "c"]).tolist() == [True, True, False]


def test_what_a_look_adds_costs_no_more_than_it_is_worth() -> None:
    """Over many looks each entry is stored a few times, and a snapshot mostly stores what is new."""
    seen, stored = SeenFiles(), set[Blob]()
    written = []
    for look in range(1, 513):
        seen = with_files(seen, [f"{look}-{i}" for i in range(8)], look)
        blobs = {blob for blob in seen.state()["segments"] if isinstance(blob, Blob)}
        assert len(blobs) <= 11
        written.append(sum(len(blob) for blob in blobs - stored))
        stored = blobs
    assert sorted(written)[len(written) // 2] < 2_000
    assert sum(written) < 24 * 8 * 512 * 10 + 512 * 1_000


def test_files_that_are_too_old_leave_the_state() -> None:
    seen = SeenFiles()
    for day in range(100):
        seen = with_files(seen, [f"{day}-{i}" for i in range(50)], day * 24 * HOUR_MS).without_old(7 * 24 * HOUR_MS)
    assert len(seen) <= 3 * 8 * 50
    assert seen.contains(["99-0", "0-0"]).tolist() == [True, False]


def test_a_state_of_the_first_release_is_read() -> None:
    seen = SeenFiles.restored({"seen": {"/in/a": 5, "/in/b": 9}, "horizon_ms": 3})
    assert seen.contains(["/in/a", "/in/b", "/in/c"]).tolist() == [True, True, False]
    assert seen.horizon_ms == 3


def test_names_of_any_bytes() -> None:
    name = b"\xff\n".decode("utf-8", "surrogateescape")
    assert with_files(SeenFiles(), [name]).contains([name]).all()


def test_many_names_at_random() -> None:
    rng = random.Random(3)
    names = [f"{rng.getrandbits(64):x}" for _ in range(5_000)]
    seen = SeenFiles()
    for start in range(0, 4_000, 250):
        seen = with_files(seen, names[start : start + 250])
    assert seen.contains(names).tolist() == [True] * 4_000 + [False] * 1_000
