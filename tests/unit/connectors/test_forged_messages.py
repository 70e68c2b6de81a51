"""Commit messages lie at a checkpoint location until they are committed: somebody may have forged them."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.connectors.files.parquet.sink import ParquetFormat
from penstock.connectors.files.private_directory import EARLIER_HOME, HOME
from penstock.connectors.files.sink_committer import FileSinkCommitter
from penstock.connectors.files.sink_plan import PRIVATE_DIRECTORY, decode_files, plan_epoch
from penstock.connectors.python.commit_messages import decode_message
from penstock.connectors.spark.staged_rows import decode_staged
from penstock.connectors.spark.table_sink import _decoded
from penstock.errors import SinkError
from penstock.grammar import TablePath
from penstock.model.commits import EpochCommit
from penstock.model.manifest import QueryIdentity, SourceManifest

FINAL = "part-00000-q-e0000000001-c000.snappy.parquet"


STAGED = "_penstock/staged/g1-ab-00000-000000.parquet"


def file_message(staged: str, final: str, **more: object) -> bytes:
    return json.dumps({"files": [{"staged": staged, "final": final, "rows": 1, "size": 1}], **more}).encode()


def test_what_writers_say_is_taken() -> None:
    for fingerprint in ("", "a44136e3"):  # the first release's messages have none
        assert decode_files(file_message(STAGED, f"p=1/{FINAL}", fingerprint=fingerprint), PRIVATE_DIRECTORY).files
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
        (STAGED, f"/etc/{FINAL}"),
        (STAGED, f"../{FINAL}"),
        (STAGED, f"p=1/../../{FINAL}"),
        (STAGED, f"_spark_metadata/{FINAL}"),
        (STAGED, f"p=1/\0/{FINAL}"),
        (STAGED, f"{FINAL}\n"),
        (STAGED, "precious"),
        (STAGED, ""),
    ],
)
def test_a_file_sink_touches_nothing_that_its_writers_do_not_name(staged: str, final: str) -> None:
    with pytest.raises(SinkError, match="it was forged, and nothing was touched"):
        decode_files(file_message(staged, final), PRIVATE_DIRECTORY)


@pytest.mark.parametrize(
    "fingerprint", ["../../../outside", "/etc", "..", "a/b", "a44136e3/..", "A44136E3", "a44136e3\n", "\0" * 8]
)
def test_a_forged_fingerprint_is_refused(fingerprint: str) -> None:
    with pytest.raises(SinkError, match="it was forged, and nothing was touched"):
        decode_files(file_message(STAGED, FINAL, fingerprint=fingerprint), PRIVATE_DIRECTORY)


@pytest.mark.parametrize(("query", "epoch"), [("another", 1), ("q", 2)])
def test_a_message_names_files_of_its_own_query_and_epoch(query: str, epoch: int) -> None:
    message = {0: file_message(STAGED, FINAL)}
    assert plan_epoch(EpochCommit("q", 1, message), PRIVATE_DIRECTORY)
    with pytest.raises(SinkError, match="forged"):
        plan_epoch(EpochCommit(query, epoch, message), PRIVATE_DIRECTORY)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "p=1/../../x", "_x", "x/part-0", "p=1//x", "p=1/.x", ""])
def test_a_table_sink_touches_nothing_that_spark_did_not_write(tmp_path: Path, path: str) -> None:
    listed = tmp_path / "_files.json"
    listed.write_text(json.dumps(["p=1/part-00000-ab.c000.snappy.parquet", path]))
    with pytest.raises(SinkError, match="damaged or forged, and nothing was touched"):
        _decoded(listed, list[TablePath])


@pytest.mark.parametrize("module", ["a/b", "../x", "a b", "a..b", "", "x\n"])
def test_the_name_of_a_class_follows_its_grammar(module: str) -> None:
    message = json.dumps({"kind": "dataclass", "module": module, "name": "N", "fields": {}}).encode()
    with pytest.raises(SinkError, match="none that Penstock wrote"):
        decode_message(message, b"k" * 32, "query", 1)


@pytest.mark.parametrize("query_id", ["../../x", "/x", "a/b", "..", "", "a\n", "a\x1b[2J"])
def test_a_query_id_is_a_part_of_file_names(query_id: str) -> None:
    identity = {"operators": {}, "edges": {}, "format_version": 1, "max_parallelism": 1, "parallelism": 1}
    assert msgspec.convert(identity | {"query_id": "71fa7700-37dd"}, QueryIdentity)
    with pytest.raises(msgspec.ValidationError, match="regex"):
        msgspec.convert(identity | {"query_id": query_id}, QueryIdentity)


@pytest.mark.parametrize("operator_id", ["../x", "/x", "a/../b", "", "a//b", "a/", "a\n", "source 0"])
def test_an_operators_id_is_a_part_of_file_names(operator_id: str) -> None:
    source = {"vertex": 0, "state": None, "pending": []}
    for known in ("source-0", "output-1/aggregate-0", "my.counts_2", "output-1/..x"):
        assert msgspec.convert(source | {"operator_id": known}, SourceManifest)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(source | {"operator_id": operator_id}, SourceManifest)


def test_foreign_files_among_bundles_and_kept_files_stay(tmp_path: Path) -> None:
    """A user who may write to the output directory may create any file there."""
    private = tmp_path / HOME
    outside = tmp_path / "outside"
    outside.write_text("precious")
    final = FINAL.replace("e0000000001", "e0000000000")
    for name in (f"bundles/x.open/{final}", f"kept/../kept/x/{final}", "kept/a44136e3/strange", "kept-epochs/strange"):
        path = private / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (private / f"kept/a44136e3/{final}").symlink_to(outside)
    before = sorted(tmp_path.rglob("*"))
    rows = ParquetFormat(pa.schema([("a", pa.int64())]), "snappy")
    committer = FileSinkCommitter(tmp_path, rows, 60.0, 1 << 20)
    committer.open("q")
    committer.abandon(1)
    committer.close()
    made = {tmp_path / EARLIER_HOME, private / "owner.json"}
    assert sorted(set(tmp_path.rglob("*")) - made) == before


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
