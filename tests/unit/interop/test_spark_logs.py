"""The logs of a checkpoint of Structured Streaming, from directories of all kinds; without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import LocationError, NotYet
from penstock.interop.spark_checkpoint import logs
from penstock.interop.spark_checkpoint.logs import read_checkpoint, read_file_log


def plan(watermark_ms: int = 0, *positions: str) -> str:
    meta = json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1, "conf": {"a": "b"}})
    return "\n".join(["v1", meta, *positions])


def commit(watermark_ms: int = 0, version: str = "v1") -> str:
    return f'{version}\n{{"nextBatchWatermarkMs":{watermark_ms}}}'


def entries(*numbers: int) -> str:
    lines = [{"path": f"file:///in%20put/f{n}%2520.txt", "timestamp": 1000 + n, "batchId": n} for n in numbers]
    return "\n".join(["v1", *map(json.dumps, lines)])


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """``made({path: text})`` is a whole checkpoint, with these files instead of or besides its own; None: without."""

    def make(changes: dict[str, str | None] | None = None) -> Path:
        folder = tmp_path / "spark"
        files: dict[str, str | None] = {
            "metadata": '{"id":"some-id"}',
            "offsets/0": plan(0, '{"logOffset":0}'),
            "offsets/1": plan(5_000, '{"logOffset":1}'),
            "offsets/2": plan(9_000, '{"logOffset":2}'),
            "commits/0": commit(5_000),
            "commits/1": commit(9_000),
            "sources/0/0": entries(0),
            "sources/0/1": entries(1),
            "sources/0/2": entries(2),
        }
        for path, text in (files | (changes or {})).items():
            if text is not None:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
        return folder

    return make


def test_the_newest_committed_batch_counts(made: Callable[..., Path]) -> None:
    found = read_checkpoint(f"file://{made({'offsets/.2.crc': '', 'commits/.3.tmp': ''})}")
    assert (found.query_id, found.batch, found.planned) == ("some-id", 1, 2)
    assert found.positions == ({"logOffset": 1},)
    assert (found.closed_ms, found.watermark_ms, found.conf) == (5_000, 9_000, {"a": "b"})
    assert not found.has_state
    assert not found.state_ids


def test_a_source_of_which_nothing_was_read_and_commits_of_the_second_version(made: Callable[..., Path]) -> None:
    found = read_checkpoint(str(made({"offsets/1": plan(0, "-"), "offsets/2": None, "commits/1": commit(0, "v2")})))
    assert (found.positions, found.planned, found.state_ids) == ((None,), None, True)


@pytest.mark.parametrize(
    ("changes", "up_to"),
    [
        ({}, 1),
        ({"sources/0/1": None, "sources/0/0": None, "sources/0/1.compact": entries(0, 1)}, 1),
        ({"sources/0/0": None, "sources/0/0.compact": entries(0)}, 1),
        # the compaction of a planned batch, after which the single files went
        ({"sources/0/0": None, "sources/0/1": None, "sources/0/2": None, "sources/0/2.compact": entries(0, 1, 2)}, 1),
    ],
)
def test_files_of_committed_batches(made: Callable[..., Path], changes: dict[str, str], up_to: int) -> None:
    found = read_file_log(read_checkpoint(str(made(changes))), 0, up_to)
    assert found == {"/in put/f0%20.txt": 1000, "/in put/f1%20.txt": 1001}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": None}, "no checkpoint of Structured Streaming: it has no metadata"),
        ({"query.json": "{}"}, "Penstock's own.*startFrom"),
        ({"metadata": "[]"}, "metadata: .* is not a JSON object; the checkpoint is damaged"),
        ({"metadata": '{"id":7}'}, "has no id"),
        ({"commits/0": None, "commits/1": None}, "no commits"),
        ({"commits/1": "v1\n{"}, "commits/1: '{' is not JSON"),
        ({"commits/1": ""}, "commits/1: it does not begin with a version"),
        ({"commits/1": "v1\n[" + "[" * 100_000}, "commits/1: .* is not JSON"),
        ({"commits/1": commit(0, "v7")}, "commits/1 is of version v7; this release reads v1 and v2"),
        ({"commits/1": 'v1\n{"nextBatchWatermarkMs":-4}'}, "nextBatchWatermarkMs is -4"),
        ({"commits/1": 'v1\n{"nextBatchWatermarkMs":true}'}, "nextBatchWatermarkMs is True"),
        ({"offsets/1": None}, "offsets/1 is missing, though the batch was committed"),
        ({"offsets/1": plan().replace("v1", "v2")}, "offsets/1 is of version v2; this release reads v1"),
        ({"offsets/1": "v1"}, "offsets/1: it ends too early"),
        ({"offsets/1": plan(0, "7")}, "'7' is not a JSON object"),
        ({"offsets/1": 'v1\n{"batchWatermarkMs":0,"conf":[]}'}, "its settings are no object"),
        ({"offsets/1": "v1\n" + "x" * 100}, "more than 90"),
        ({"sources/0/0": None}, "sources/0/0: it is missing"),
        ({"sources/0/0": "v1\n{}"}, "batchId is None"),
        ({"sources/0/0": 'v1\n{"batchId":0,"timestamp":1}'}, "path is None"),
        ({"sources/0/0": 'v1\n{"batchId":0,"timestamp":"1","path":"file:/a"}'}, "timestamp is '1'"),
    ],
)
def test_what_is_damaged_or_none_is_named(
    made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], message: str
) -> None:
    if message == "more than 90":
        monkeypatch.setattr(logs, "MAX_LOG_BYTES", 90)
    with pytest.raises(LocationError, match=message):
        read_file_log(read_checkpoint(str(made(changes))), 0, 1)


def test_no_batch_committed_is_no_damage(made: Callable[..., Path]) -> None:
    nothing = {"commits/0": None, "commits/1": None, "commits/.0.crc": ""}
    folder = made(nothing)
    with pytest.raises(LocationError, match=r"no batch of Spark's query was committed.*batch 2 was planned.*finish it"):
        read_checkpoint(str(folder))
    for begun in (folder / "offsets").glob("[0-9]*"):
        begun.unlink()
    with pytest.raises(LocationError, match=r"no batch of Spark's query was committed.*empty checkpointLocation"):
        read_checkpoint(str(folder))


def test_nothing_but_plain_files_is_opened(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made({"commits/1": None, "sources/0/1": None})
    os.symlink(tmp_path / "elsewhere", folder / "commits/1")
    with pytest.raises(LocationError, match="commits/1: it is not a plain file"):
        read_checkpoint(str(folder))
    (folder / "commits/1").unlink()
    os.mkfifo(folder / "commits/1")  # would block for ever
    with pytest.raises(LocationError, match="commits/1: it is not a plain file"):
        read_checkpoint(str(folder))


def test_files_elsewhere_and_far_positions(made: Callable[..., Path]) -> None:
    far = {"sources/0/0": 'v1\n{"path":"s3a://bucket/x","timestamp":1,"batchId":0}'}
    with pytest.raises(NotYet, match="s3a://bucket/x"):
        read_file_log(read_checkpoint(str(made(far))), 0, 1)
    with pytest.raises(LocationError, match="sources/0/3: it is missing"):
        read_file_log(read_checkpoint(str(made())), 0, 1 << 60)


def test_no_folder_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, message in (("none", "there is no such folder"), ("file", "cannot be read: Not a directory")):
        with pytest.raises(LocationError, match=message):
            read_checkpoint(str(tmp_path / name))
