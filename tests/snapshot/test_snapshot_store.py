"""Both stores keep the promises of the interface; the local one also against other processes' names and crashes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.snapshot.store import Effect, LocalStore, MemoryStore, Store


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def test_a_file_is_created_once_whole_and_read_back(store: Store) -> None:
    assert store.create_if_absent("log/1.json", b"first")
    assert not store.create_if_absent("log/1.json", b"second")
    assert store.read("log/1.json") == b"first"
    assert store.read_range("log/1.json", 1, 2) == b"ir"
    assert store.read_range("log/1.json", 3, 99) == b"st"
    assert store.size("log/1.json") == 5
    assert store.exists("log/1.json")


def test_what_is_absent_is_said_to_be(store: Store) -> None:
    assert store.size("data/x") is None
    assert not store.exists("data/x")
    assert store.list("data") == []
    store.delete("data/x")
    for read in (lambda: store.read("data/x"), lambda: store.read_range("data/x", 0, 1)):
        with pytest.raises(FileNotFoundError):
            read()


def test_a_data_file_is_exclusive_and_abandoning_removes_it(store: Store) -> None:
    file = store.create("data/1-1-0.arrows")
    file.write(b"abc")
    file.write(b"def")
    file.close()
    assert store.read("data/1-1-0.arrows") == b"abcdef"
    with pytest.raises(FileExistsError):
        store.create("data/1-1-0.arrows")
    file.abandon()
    assert store.exists("data/1-1-0.arrows"), "a closed file stays"
    other = store.create("data/1-2-0.arrows")
    other.write(b"x")
    other.abandon()
    assert not store.exists("data/1-2-0.arrows")


def test_listing_is_sorted_and_recursive(store: Store) -> None:
    for path in ("snapshots/chk-2/metadata.json", "snapshots/chk-10/metadata.json", "data/1"):
        store.create_if_absent(path, b"")
    assert store.list("snapshots") == ["snapshots/chk-10/metadata.json", "snapshots/chk-2/metadata.json"]
    store.delete("snapshots/chk-2/metadata.json")
    assert store.list("snapshots") == ["snapshots/chk-10/metadata.json"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "data/../../x", "data//x", "", "./x", "a\\b", "a\0b"])
def test_paths_cannot_leave_the_store(store: Store, path: str) -> None:
    for call in (store.read, store.size, store.delete, store.list, store.create):
        with pytest.raises(ValueError, match="clean relative path"):
            call(path)
    with pytest.raises(ValueError, match="clean relative path"):
        store.create_if_absent(path, b"")


def test_of_many_threads_exactly_one_creates(tmp_path: Path) -> None:
    wins: list[int] = []
    start = threading.Barrier(8)

    def contend(number: int) -> None:
        store = LocalStore(tmp_path)
        start.wait()
        for seq in range(20):
            if store.create_if_absent(f"log/{seq}", b"%d" % number):
                wins.append(seq)

    threads = [threading.Thread(target=contend, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(20))
    assert sorted(os.listdir(tmp_path / "log")) == sorted(str(n) for n in range(20)), "no temporary file is left"


def test_the_name_appears_only_after_the_bytes_are_durable_and_the_folder_is_synced_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    story: list[str] = []
    fsync, link = os.fsync, os.link

    def recorded_fsync(descriptor: int) -> None:
        story.append("fsync folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync file")
        fsync(descriptor)

    def recorded_link(source: Path, target: Path) -> None:
        assert not target.exists()
        assert source.read_bytes() == b"entry"
        story.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "link", recorded_link)
    store = LocalStore(tmp_path)
    assert store.create_if_absent("log/1", b"entry")
    assert story == ["fsync file", "link", "fsync folder"]
    story.clear()
    file = store.create("log/data")
    file.write(b"x")
    assert story == []
    file.close()
    assert story == ["fsync file", "fsync folder"]


def test_a_crash_before_the_link_leaves_nothing_that_a_reader_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(source: Path, target: Path) -> None:
        raise OSError("power is out")

    monkeypatch.setattr(os, "link", crash)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    store = LocalStore(tmp_path)
    with pytest.raises(OSError, match="power"):
        store.create_if_absent("log/1", b"entry")
    assert store.list("log") == []
    assert store.size("log/1") is None
    assert len(os.listdir(tmp_path / "log")) == 1, "the temporary file is there and is not listed"


def test_hooks_see_every_effect_and_may_fail_it_before_or_after() -> None:
    store = MemoryStore()
    seen: list[Effect] = []
    store.hook = seen.append
    store.create_if_absent("log/1", b"x")
    assert seen == [Effect("create_if_absent", "log/1", "before"), Effect("create_if_absent", "log/1", "after")]

    def fail(phase: str) -> None:
        def hook(effect: Effect) -> None:
            if effect.phase == phase:
                raise OSError(28, "No space left on device")

        store.hook = hook

    fail("before")
    with pytest.raises(OSError, match="No space"):
        store.create_if_absent("log/2", b"x")
    assert "log/2" not in store.files
    fail("after")
    with pytest.raises(OSError, match="No space"):
        store.create_if_absent("log/2", b"x")
    assert store.files["log/2"] == b"x"
