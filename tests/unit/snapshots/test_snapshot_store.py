"""Both stores keep the promises of the interface; the local one also against other processes' names and crashes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.snapshots.store.store import Effect, LocalStore, MemoryStore, Store
from penstock.snapshots.store.subfolder import Subfolder
from tests.support.snapshots.store_kit import StoreContract, contend_in_processes, contend_in_threads


class TestEveryStore(StoreContract):
    @pytest.fixture(params=["local", "memory", "part of local", "part of memory"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
        store = LocalStore(tmp_path) if "local" in request.param else MemoryStore()
        return Subfolder(store, "portable/chk-1") if "part" in request.param else store


def test_of_many_threads_exactly_one_creates(tmp_path: Path) -> None:
    contend_in_threads(lambda: LocalStore(tmp_path), 8, 20)
    assert sorted(os.listdir(tmp_path / "log")) == sorted(str(n) for n in range(20)), "no temporary file is left"


def test_of_processes_exactly_one_creates(tmp_path: Path) -> None:
    first, second = contend_in_processes(str(tmp_path), 2, 100, {})
    assert sorted(first + second) == list(range(100))


def test_the_name_appears_only_after_the_bytes_are_durable_and_the_folder_is_synced_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    story: list[str] = []
    fsync, link = os.fsync, os.link

    def recorded_fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_relative_to(tmp_path):  # threads of other tests may sync files of their own
            story.append("fsync folder" if path.is_dir() else "fsync file")
        fsync(descriptor)

    def recorded_link(source: str, target: str, **folders: Any) -> None:
        assert not (tmp_path / "log" / target).exists()
        assert (tmp_path / "log" / source).read_bytes() == b"entry"
        story.append("link")
        link(source, target, **folders)

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
    def crash(*names: str, **folders: int) -> None:
        raise OSError("power is out")

    monkeypatch.setattr(os, "link", crash)
    monkeypatch.setattr(os, "unlink", crash)
    store = LocalStore(tmp_path)
    with pytest.raises(OSError, match="power"):
        store.create_if_absent("log/1", b"entry")
    assert store.list("log") == []
    assert store.size("log/1") is None
    assert len(os.listdir(tmp_path / "log")) == 1, "the temporary file is there and is not listed"


@pytest.mark.parametrize("moment", ["created", "made durable", "removed"])
def test_a_file_in_the_place_of_a_folder_fails_a_write_as_a_full_disk_does(tmp_path: Path, moment: str) -> None:
    """``OSError`` declines a checkpoint or postpones a collection; ``CorruptSnapshot`` would end the Generation."""
    store = LocalStore(tmp_path)
    file = store.create("data/1")
    (tmp_path / "data").rename(tmp_path / "aside")
    (tmp_path / "data").write_text("no folder")
    act: dict[str, Callable[[], object]] = {
        "created": lambda: store.create("data/2"),
        "made durable": file.close,
        "removed": lambda: store.delete("data/1"),
    }
    with pytest.raises(NotADirectoryError):
        act[moment]()
    file.abandon()


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
