"""Users' sinks with a fence: one value that the sink stores and replaces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from penstock.connectors.python.signed import KEY_FILE_VARIABLE
from penstock.connectors.python.sink import PythonSink
from penstock.errors import CommitFailed, SinkError, SinkFenced
from tests.support.connectors import user_sources
from tests.unit.connectors.test_fence import Driver, Location

PYTHON_SCHEMA = pa.schema([("n", pa.int64())])


class Transactional(user_sources.Folder):
    """Keeps the fence in memory, as a database would."""

    stored: ClassVar[dict[str, bytes]] = {}

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        return FencedFolder(Path(self.options["folder"]), self.options)


class FencedFolder(user_sources.FolderWriter):
    fence: bytes | None = None
    during_commit: Callable[[], None] | None = None

    def readFence(self, queryId: str) -> bytes | None:  # noqa: N802, N803
        return Transactional.stored.get(queryId)

    def replaceFence(self, queryId: str, expected: bytes | None, value: bytes) -> bool:  # noqa: N802, N803
        if Transactional.stored.get(queryId) != expected:
            return False
        Transactional.stored[queryId] = value
        return True

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        if self.during_commit is not None:
            self.during_commit()
        if self.fence not in Transactional.stored.values():
            raise ValueError("the fence has changed")
        super().commit(messages, batchId)


def test_a_users_sink_with_a_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "hmac.key"))
    Transactional.stored = {}
    (tmp_path / "folder").mkdir()
    rows = lambda *values: pa.record_batch([pa.array(values, pa.int64())], schema=PYTHON_SCHEMA)  # noqa: E731
    made = PythonSink(
        "db", Transactional, {"folder": str(tmp_path / "folder")}, PYTHON_SCHEMA, '{"type":"struct","fields":[]}'
    )
    monkeypatch.setattr(user_sources.FolderWriter, "lines", lambda self, rows: [json.dumps({"n": 1}) for _ in rows])
    monkeypatch.setattr("penstock.connectors.python.sink.to_rows", lambda batch, schema: iter(batch.to_pylist()))
    origin = Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, rows(1)))
    late = one.stage(2, rows(2))
    copy = origin.copied("/b")
    two = Driver(made, copy)

    def between() -> None:
        FencedFolder.during_commit = None
        two.fence()

    monkeypatch.setattr(FencedFolder, "during_commit", lambda self: between())
    with pytest.raises(SinkFenced):
        one.committer.commit(late)
    two.committer.commit(late)
    two.committer.commit(two.stage(3, rows(3)))
    with pytest.raises(SinkError, match="sink db has newer output"):
        one.fence()
    origin.logs()
    assert one.fence(over=[copy.newest.name]).token
    assert one.committer.next_batch() == 4
    with pytest.raises(SinkError, match="sink db has newer output"):
        two.fence()
    with pytest.raises(SinkFenced):
        two.committer.check_held()
    assert len(list((tmp_path / "folder").glob("*.json"))) == 3


def test_half_a_fence_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "hmac.key"))
    monkeypatch.setattr(user_sources.FolderWriter, "readFence", lambda self, query_id: None, raising=False)
    made = PythonSink(
        "half", user_sources.Folder, {"folder": str(tmp_path)}, PYTHON_SCHEMA, '{"type":"struct","fields":[]}'
    )
    with pytest.raises(SinkError, match="a fence needs both"):
        Driver(made, Location("/a"))


def test_a_sink_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is repeated like one that failed; a look in between fails nothing."""
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "hmac.key"))
    Transactional.stored = {}
    made = PythonSink("db", Transactional, {"folder": str(tmp_path)}, PYTHON_SCHEMA, '{"type":"struct","fields":[]}')
    one = Driver(made, Location("/a")).fence()

    def away(*arguments: Any) -> Any:
        raise ConnectionError("away")

    with monkeypatch.context() as outage:
        outage.setattr(FencedFolder, "readFence", away)
        outage.setattr(FencedFolder, "replaceFence", away)
        one.committer.check_held()
        with pytest.raises(CommitFailed, match="ConnectionError: away"):
            one.committer.hold(one.location.logs(), 1)
    one.committer.hold(one.location.newest, 1)
    assert one.committer.next_batch() == 1
