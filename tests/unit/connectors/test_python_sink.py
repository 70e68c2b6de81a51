"""Python data sources as sinks: one write per epoch, plain or signed messages, nothing forged is ever unpickled."""

from __future__ import annotations

import base64
import json
import pickle
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.connectors.base import SinkCommitter, SinkContext
from penstock.connectors.python.commit_messages import decode_message, encode_message
from penstock.connectors.python.signed import KEY_FILE_VARIABLE, load_key, sign, verify
from penstock.connectors.python.sink import PythonSink
from penstock.errors import CommitFailed, CommitInterrupted, ConfigError, FunctionError, SinkError
from penstock.model.commits import EpochCommit
from tests.support.connectors import user_sources
from tests.support.connectors.kits import QUERY_ID, check_commits_once, stage

SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
SPARK_SCHEMA = StructType().add("n", "long").add("t", "timestamp").json()
KEY = b"k" * 32


@pytest.fixture(autouse=True)
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys" / "hmac.key"
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(path))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


def sink(folder: Path, **options: str) -> PythonSink:
    return PythonSink("folder", user_sources.Folder, {"folder": str(folder), **options}, SCHEMA, SPARK_SCHEMA)


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64()), pa.array(values, SCHEMA.field(1).type)], schema=SCHEMA)


def committed(folder: Path) -> list[int]:
    return [json.loads(line)["n"] for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("options", [{}, {"arrow": "1"}, {"message": "bytes"}], ids=str)
def test_each_epoch_is_written_once(folder: Path, options: dict[str, str]) -> None:
    target = sink(folder, **options)
    for number, epoch in enumerate((3, 7)):
        permit = replace(stage(target, {0: batch(1, 2), 1: batch(3)}, epoch), batch=number)
        check_commits_once(target, permit, lambda: len(committed(folder)), 3)
    assert [path.name for path in sorted(folder.glob("*.json"))] == ["0-0.json", "0-1.json", "1-0.json", "1-1.json"]


def test_one_write_per_epoch_with_rows(folder: Path) -> None:
    writer = sink(folder).create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    assert writer.prepare(1) is None
    writer.write(batch(1))
    writer.write(batch(2, 3))
    message = writer.prepare(2)
    assert json.loads(message)["fields"]["rows"] == 3
    assert writer.prepare(3) is None
    assert len(list(folder.iterdir())) == 1


def test_a_write_that_returns_early_ends_the_epoch(folder: Path) -> None:
    writer = sink(folder, fails="early").create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    writer.write(batch(1, 2))
    writer.write(batch(3))
    assert json.loads(writer.prepare(1))["fields"]["rows"] == 1


def test_rows_have_sparks_types(folder: Path) -> None:
    target = sink(folder)
    target.create_committer().commit(stage(target, {0: batch(0)}, 1))
    (line,) = (folder / "0-0.json").read_text().splitlines()
    assert json.loads(line) == {"n": 0, "t": "1970-01-01 00:00:00"}


def test_user_errors(folder: Path) -> None:
    writer = sink(folder, fails="write").create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa", operator_id="sink-1"))
    with pytest.raises(FunctionError, match=r"operator sink-1 \(sink folder\) raised ValueError: cannot write"):
        writer.write(batch(1))
    writer = sink(folder, fails="message").create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    writer.write(batch(1))
    with pytest.raises(SinkError, match="write returned a str, not a WriterCommitMessage"):
        writer.prepare(1)
    failing = sink(folder, fails="commit")
    with pytest.raises(CommitInterrupted, match="commit of batch 0 raised ValueError: cannot commit"):
        failing.create_committer().commit(stage(failing, {0: batch(1)}, 9))
    failing.create_committer().commit(EpochCommit(QUERY_ID, 10, {}))  # nothing was written: the user is not asked


def test_an_unfinished_write_is_abandoned_with_its_files_closed(folder: Path) -> None:
    writer = sink(folder).create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    writer.write(batch(1))
    writer.close()
    (staged,) = folder.iterdir()
    assert staged.read_text().strip(), "the with block in the user's write was left, so the file was flushed"


def test_plain_messages_are_plain_json() -> None:
    message = user_sources.Written("p", 3, ["x"])
    data = encode_message(message, KEY, QUERY_ID, 1, SPARK_SCHEMA)
    assert json.loads(data) == {
        "kind": "dataclass", "module": user_sources.__name__, "name": "Written",
        "fields": {"path": "p", "rows": 3, "tags": ["x"]}, "columns": SPARK_SCHEMA,
    }  # fmt: skip
    decoded = decode_message(data, b"another key" * 4, QUERY_ID, 2)
    assert decoded == (message, SPARK_SCHEMA), "no secret is needed to read plain data"


def test_what_earlier_releases_stored_has_no_columns() -> None:
    plain = {
        "kind": "dataclass",
        "module": user_sources.__name__,
        "name": "Written",
        "fields": {"path": "p", "rows": 3, "tags": []},
    }
    assert decode_message(json.dumps(plain).encode(), KEY, QUERY_ID, 1) == (user_sources.Written("p", 3, []), "")
    signed = sign(KEY, f"penstock commit message {QUERY_ID} 1", pickle.dumps(user_sources.WrittenBytes((1, b"x"))))
    pickled = json.dumps({"kind": "signed-pickle", "data": base64.b64encode(signed).decode()}).encode()
    assert decode_message(pickled, KEY, QUERY_ID, 1)[1] == ""


def test_a_batch_is_committed_by_a_writer_for_the_columns_that_its_rows_had(folder: Path) -> None:
    older = StructType().add("m", "long").add("t", "timestamp").json()
    before = PythonSink("folder", user_sources.Folder, {"folder": str(folder)}, SCHEMA, older)
    waiting = stage(before, {0: batch(1, 2)}, 3)
    made: list[list[str]] = []

    class Recording(user_sources.Folder):
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            made.append(schema.fieldNames())
            if schema.fieldNames() == ["m", "t"] and self.options.get("refuses"):
                raise ValueError("no column m")
            return super().streamWriter(schema, overwrite)

    def committer(**options: str) -> SinkCommitter:
        return PythonSink(
            "folder", Recording, {"folder": str(folder), **options}, SCHEMA, SPARK_SCHEMA
        ).create_committer()

    with pytest.raises(FunctionError, match="no column m"):
        committer(refuses="1").check_pending(waiting, same_columns=False)
    made.clear()
    one = committer()
    one.check_pending(waiting, same_columns=False)
    one.open(QUERY_ID)
    one.commit(waiting)
    one.commit(stage(sink(folder), {0: batch(3)}, 4))
    assert made == [["m", "t"], ["n", "t"]]
    bare = json.dumps({k: v for k, v in json.loads(waiting.messages[0]).items() if k != "columns"}).encode()
    with pytest.raises(SinkError, match="did not store their columns"):
        one.check_pending(EpochCommit(QUERY_ID, 5, {0: bare}), same_columns=False)


class Explosive(WriterCommitMessage):
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_forged_messages_are_refused_without_unpickling(tmp_path: Path, folder: Path) -> None:
    trap = tmp_path / "unpickled"
    pickled = pickle.dumps(Explosive(trap))

    def commit(blob: bytes) -> None:
        message = json.dumps({"kind": "signed-pickle", "data": base64.b64encode(blob).decode()}).encode()
        sink(folder).create_committer().commit(EpochCommit(QUERY_ID, 1, {0: message}))

    genuine = sign(load_key(), f"penstock commit message {QUERY_ID} 1", pickled)
    flipped = genuine[:-1] + bytes([genuine[-1] ^ 1])
    other_epoch = sign(load_key(), f"penstock commit message {QUERY_ID} 2", pickled)
    for forged in (pickled, b"\0" * 32 + pickled, sign(KEY, "", pickled), flipped, other_epoch, b""):
        with pytest.raises(CommitFailed, match="does not carry this user's signature and was not opened"):
            commit(forged)
        assert not trap.exists()
    with pytest.raises(CommitFailed, match="no WriterCommitMessage"):
        commit(genuine)
    assert trap.exists(), "the trap works: a genuine signature opens it"


def test_plain_messages_name_only_loaded_dataclasses_of_messages() -> None:
    for module, name in (("os", "system"), ("subprocess", "Popen"), ("missing_module", "X"), ("json", "JSONDecoder")):
        data = json.dumps({"kind": "dataclass", "module": module, "name": name, "fields": {}}).encode()
        with pytest.raises(SinkError, match=f"{module}.{name} are stored"):
            decode_message(data, KEY, QUERY_ID, 1)
    known = {"kind": "dataclass", "module": user_sources.__name__, "name": "Written"}
    data = json.dumps(known | {"fields": {"x": 1}}).encode()
    with pytest.raises(SinkError, match="no longer takes the stored fields"):
        decode_message(data, KEY, QUERY_ID, 1)


@pytest.mark.parametrize(
    "message",
    [
        user_sources.WrittenBytes((1, b"x")),
        user_sources.Written("p", float("nan"), []),
        user_sources.Written("p", 1, ("x",)),
    ],
    ids=["bytes", "nan", "tuple"],
)
def test_what_json_would_change_is_pickled(message: WriterCommitMessage) -> None:
    data = encode_message(message, KEY, QUERY_ID, 1, SPARK_SCHEMA)
    assert json.loads(data)["kind"] == "signed-pickle"
    decoded, columns = decode_message(data, KEY, QUERY_ID, 1)
    assert (repr(decoded), columns) == (repr(message), SPARK_SCHEMA)
    other = json.dumps({**json.loads(data), "columns": SPARK_SCHEMA.replace("long", "string")}).encode()
    with pytest.raises(SinkError, match="signature"):
        decode_message(other, KEY, QUERY_ID, 1)


def test_the_key_is_created_once_and_for_its_owner_only(key_file: Path) -> None:
    key = load_key()
    assert len(key) == 32
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert load_key() == key
    key_file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"mode 0644: others can read it; chmod 600 "):
        load_key()
    key_file.chmod(0o600)
    key_file.write_bytes(b"short")
    with pytest.raises(ConfigError, match="holds 5 bytes"):
        load_key()


def test_signatures_cover_purpose_and_content() -> None:
    signed = sign(KEY, "a", b"blob")
    assert verify(KEY, "a", signed) == b"blob"
    assert verify(KEY, "b", signed) is None
    assert verify(b"x" * 32, "a", signed) is None
    assert verify(KEY, "a", signed + b"!") is None
