"""Commit messages lie at a checkpoint location until they are committed: somebody may have forged them."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path

import pytest
from pyspark import cloudpickle

from penstock.connectors.base import EpochCommit
from penstock.connectors.commit_messages import decode_message
from penstock.connectors.file_sink_plan import PRIVATE_DIRECTORY, decode_files, plan_epoch
from penstock.connectors.staged_rows import decode_staged
from penstock.errors import SinkError

FINAL = "part-00000-q-e0000000001-c000.snappy.parquet"


def file_message(staged: str, final: str) -> bytes:
    return json.dumps({"files": [{"staged": staged, "final": final, "rows": 1, "size": 1}]}).encode()


def test_what_writers_say_is_taken() -> None:
    assert decode_files(
        file_message("_penstock/staged/g1-ab-00000-000000.parquet", f"p=1/{FINAL}"), PRIVATE_DIRECTORY
    ).files
    assert decode_staged(b'{"file":"g1-ab-00000-000000.parquet","rows":1,"size":1}').rows == 1


@pytest.mark.parametrize(
    ("staged", "final"),
    [
        ("/etc/passwd", FINAL),
        ("../../precious", FINAL),
        ("_penstock/staged/../../precious", FINAL),
        ("_penstock/staged/", FINAL),
        ("_penstock/staged/..", FINAL),
        ("_penstock/owner.json", FINAL),
        ("_penstock/staged/x", f"/etc/{FINAL}"),
        ("_penstock/staged/x", f"../{FINAL}"),
        ("_penstock/staged/x", f"p=1/../../{FINAL}"),
        ("_penstock/staged/x", "precious"),
        ("_penstock/staged/x", ""),
    ],
)
def test_a_file_sink_touches_nothing_that_its_writers_do_not_name(staged: str, final: str) -> None:
    with pytest.raises(SinkError, match="it was forged, and nothing was touched"):
        decode_files(file_message(staged, final), PRIVATE_DIRECTORY)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x.parquet", "", "g1-ab-0-0.parquet\n", "x/g1-ab-0-0.parquet", "../g1-ab-0-0.parquet", "\0"],
)
def test_staged_rows_are_none_but_a_writers(name: str) -> None:
    with pytest.raises(SinkError, match="it was forged, and nothing was touched"):
        decode_staged(json.dumps({"file": name, "rows": 1, "size": 1}).encode())


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"\xff", b"{}", b"null", b'{"files":7,"file":7}'])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    for decode in (
        lambda data: decode_files(data, PRIVATE_DIRECTORY),
        decode_staged,
        lambda data: decode_message(data, b"k" * 32, "query", 1),
    ):
        with pytest.raises(SinkError):
            decode(data)  # type: ignore[operator]


class Harm:
    """Unpickling it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


@pytest.mark.parametrize("data", ["", "!", "AAAA"])
def test_a_pickle_without_this_users_signature_is_not_opened(tmp_path: Path, data: str) -> None:
    harm = tmp_path / "harm"
    pickled = pickle.dumps(Harm(harm)) if data else cloudpickle.dumps(Harm(harm))
    for signed in (pickled, b"\0" * 32 + pickled):
        text = data if data == "!" else base64.b64encode(signed).decode()
        message = json.dumps({"kind": "signed-pickle", "data": text}).encode()
        with pytest.raises(SinkError):
            decode_message(message, b"k" * 32, "query", 1)
    assert not harm.exists()
    pickle.loads(pickled)
    assert harm.exists(), "it would have"


def test_a_permit_with_a_forged_message_raises_before_anything_happens(tmp_path: Path) -> None:
    permit = EpochCommit("query", 1, {0: file_message("../precious", FINAL)})
    with pytest.raises(SinkError, match="forged"):
        plan_epoch(permit, PRIVATE_DIRECTORY)
