"""The end of a query on the driver: every source and committer is closed, whatever the others do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import FilesCommitter, Numbers, tiny_graph


def test_sources_and_committers_are_closed_once_although_one_of_them_fails(
    tmp_path: Path, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def close_source(source: Numbers) -> None:
        closed.append(source.describe())

    def close_committer(committer: FilesCommitter) -> None:
        closed.append("committer")
        raise RuntimeError("the connection is gone")

    monkeypatch.setattr(Numbers, "close", close_source)
    monkeypatch.setattr(FilesCommitter, "close", close_committer, raising=False)
    query = run(tiny_graph(tmp_path / "out", 1, Numbers(100)), tmp_path / "chk", launcher)
    query.execution.process_all_available(30)
    query.execution.stop()
    assert sorted(closed) == ["Numbers[100]", "committer"]
    assert query.ends == [None], "everything was committed before: the query did not fail"
