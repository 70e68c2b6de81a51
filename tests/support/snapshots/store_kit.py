"""Contract of every store as tests: derive from ``StoreContract`` and give it a fixture ``store``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

import pytest

from penstock.snapshots.log.entries import GenerationOpened
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import MemoryStore, Store
from tests.support.snapshots.snapshot_kit import tokens

CONTENDER = """
import json, os, sys
from penstock.snapshots.store.stores import store_at

store = store_at(sys.argv[1])
sys.stdin.read(1)
files = range(int(sys.argv[2]))
print(json.dumps([seq for seq in files if store.create_if_absent(f"log/{seq}", sys.argv[3].encode())]))
"""


class StoreContract:
    def test_a_file_is_created_once_whole_and_read_back(self, store: Store) -> None:
        assert store.create_if_absent("log/1.json", b"first")
        assert not store.create_if_absent("log/1.json", b"second")
        assert store.read("log/1.json") == b"first"
        assert store.size("log/1.json") == 5
        assert store.exists("log/1.json")

    @pytest.mark.parametrize(("offset", "length"), [(1, 2), (3, 99), (0, 5), (5, 3), (9, 1), (2, 0), (0, 1 << 40)])
    def test_a_range_ends_where_the_file_does(self, store: Store, offset: int, length: int) -> None:
        store.create_if_absent("log/1.json", b"first")
        assert store.read_range("log/1.json", offset, length) == b"first"[offset : offset + length]

    def test_a_log_whose_files_are_removed_is_not_continued(self, store: Store) -> None:
        log = SnapshotLog(store, tokens("t"))
        log.refresh()
        log.append(GenerationOpened(1, 0, 1, 65, 0))
        assert log.deletion_text() == ""
        store.delete_all(store.list("log"))
        assert f"the checkpoint location {store.root} is gone" in log.deletion_text()
        with pytest.raises(FileNotFoundError, match=r"is gone while the query runs: log/0{19}1\.json is missing"):
            log.append(GenerationOpened(2, 0, 66, 130, 0))
        assert store.list("log") == []

    def test_what_is_absent_is_said_to_be(self, store: Store) -> None:
        assert store.size("data/x") is None
        assert not store.exists("data/x")
        assert store.list("data") == []
        assert store.sizes(["data/x"]) == {}
        store.delete("data/x")
        store.delete_all(["data/x", "data/y"])
        looks: list[Callable[[], bytes]] = [
            lambda: store.read("data/x"),
            lambda: store.read_range("data/x", 0, 1),
            lambda: store.read_range("data/x", 0, 0),
            lambda: store.read_range("data/x", 0, 1 << 40),
        ]
        for look in looks:
            with pytest.raises(FileNotFoundError):
                look()

    def test_an_empty_file_is_there(self, store: Store) -> None:
        assert store.create_if_absent("log/empty", b"")
        store.create("data/empty").close()
        assert store.size("log/empty") == store.size("data/empty") == 0
        assert store.read("data/empty") == store.read_range("data/empty", 0, 9) == b""

    def test_a_data_file_is_exclusive_and_abandoning_removes_it(self, store: Store) -> None:
        file = store.create("data/1-1-0.arrows")
        file.write(b"abc")
        file.write(memoryview(b"def"))  # type: ignore[arg-type]  # what pyarrow's buffers come as
        file.close()
        assert store.read("data/1-1-0.arrows") == b"abcdef"
        with pytest.raises(FileExistsError):
            store.create("data/1-1-0.arrows")
        file.abandon()
        assert store.exists("data/1-1-0.arrows"), "a closed file stays"
        other = store.create("data/1-2-0.arrows")
        other.write(b"x")
        other.abandon()
        other.abandon()
        assert not store.exists("data/1-2-0.arrows")

    def test_what_is_written_is_what_it_was_then(self, store: Store) -> None:
        """Rows that are captured may change when ``write`` has returned."""
        page = bytearray(b"a" * 3000)
        file = store.create("data/1")
        file.write(memoryview(page))  # type: ignore[arg-type]
        page[:] = b"b" * 3000
        file.write(memoryview(page))  # type: ignore[arg-type]
        page[:] = b"c" * 3000
        file.close()
        assert store.read("data/1") == b"a" * 3000 + b"b" * 3000

    def test_listing_is_sorted_and_recursive(self, store: Store) -> None:
        for path in ("snapshots/chk-2/metadata.json", "snapshots/chk-10/metadata.json", "data/1", "snapshots2/x"):
            store.create_if_absent(path, b"")
        assert store.list("snapshots") == ["snapshots/chk-10/metadata.json", "snapshots/chk-2/metadata.json"]
        behind = [store.list("snapshots", after=f"snapshots/chk-{name}/metadata.json") for name in ("0", "10", "2")]
        assert behind == [store.list("snapshots"), ["snapshots/chk-2/metadata.json"], []]
        store.delete("snapshots/chk-2/metadata.json")
        assert store.list("snapshots") == ["snapshots/chk-10/metadata.json"]

    def test_names_are_those_at_the_top(self, store: Store) -> None:
        assert store.top_names() == []
        for path in ("query.json", "log/1", "log/2", "data/a/b"):
            store.create_if_absent(path, b"x")
        assert store.top_names() == ["data", "log", "query.json"]

    @pytest.mark.parametrize("count", [3, 40])
    def test_many_are_measured_and_removed(self, store: Store, count: int) -> None:
        paths = [f"data/{number}" for number in range(count)] + ["query.json"]
        for number, path in enumerate(paths):
            store.create_if_absent(path, b"x" * number)
        assert store.sizes([*paths, "data/none", "none"]) == {path: number for number, path in enumerate(paths)}
        store.delete_all([path for path in paths if path != "data/1"])
        assert store.list("data") == ["data/1"]
        assert not store.exists("query.json")

    def test_a_place_is_prepared_as_often_as_one_likes(self, store: Store) -> None:
        store.prepare()
        store.create_if_absent("query.json", b"x")
        store.prepare()
        assert store.top_names() == ["query.json"], "nothing of the try is left"

    def test_a_file_is_brought_once_and_stays(self, store: Store) -> None:
        origin = MemoryStore()
        origin.create_if_absent("data/1", b"rows" * 1000)
        store.copy_from("data/1", origin)
        origin.delete("data/1")
        assert store.read("data/1") == b"rows" * 1000
        with pytest.raises(FileNotFoundError):
            store.copy_from("data/2", origin)
        assert store.list("data") == ["data/1"]

    @pytest.mark.parametrize("path", ["/etc/passwd", "../x", "data/../../x", "data//x", "", "./x", "a\\b", "a\0b"])
    def test_paths_cannot_leave_the_store(self, store: Store, path: str) -> None:
        for call in (store.read, store.size, store.delete, store.list, store.create):
            with pytest.raises(ValueError, match="clean relative path"):
                call(path)
        with pytest.raises(ValueError, match="clean relative path"):
            store.create_if_absent(path, b"")
        with pytest.raises(ValueError, match="clean relative path"):
            store.delete_all([path])


def contend_in_threads(opened: Callable[[], Store], contenders: int, files: int) -> None:
    """Check that of many threads with stores of their own exactly one creates each file, with its own content."""
    wins: dict[int, list[int]] = {seq: [] for seq in range(files)}
    start = threading.Barrier(contenders)

    def contend(number: int) -> None:
        store = opened()
        start.wait()
        for seq in range(files):
            if store.create_if_absent(f"log/{seq}", b"%d" % number):
                wins[seq].append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = opened()
    for seq, winners in wins.items():
        assert len(winners) == 1, f"log/{seq} was created by {winners}"
        assert store.read(f"log/{seq}") == b"%d" % winners[0]


def contend_in_processes(root: str, contenders: int, files: int, environment: Mapping[str, str]) -> list[list[int]]:
    """Return the files that each process created."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CONTENDER, root, str(files), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for number in range(contenders)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("g")
            process.stdin.flush()
        told = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads(text) for text in told]
