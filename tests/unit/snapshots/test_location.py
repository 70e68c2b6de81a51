"""Ownership of a location's folder, and the check of a plan against the stored one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from penstock.errors import CorruptSnapshot, LocationError, PlanChanged
from penstock.snapshots.format.plan import differences
from penstock.snapshots.location import (
    claim_identity,
    compare_identity,
    identity_of,
    open_location,
    read_identity,
    release_identity,
)
from penstock.snapshots.store.store import LocalStore, MemoryStore
from tests.support.snapshots.snapshot_kit import COUNT, SINK, SOURCE, STATE, CountSpec, NoSource, graph


def test_absent_and_empty_folders_become_locations(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for location in (str(tmp_path / "a" / "b"), str(tmp_path / "empty"), f"file:{tmp_path}/c", f"file://{tmp_path}/d"):
        store = open_location(location)
        assert isinstance(store, LocalStore)
        assert os.listdir(store.root) == []
    assert {p.name for p in tmp_path.iterdir()} == {"a", "empty", "c", "d"}


def test_a_location_opens_again(tmp_path: Path) -> None:
    store = open_location(str(tmp_path))
    identity = identity_of(graph(), "q-1")
    assert claim_identity(store, identity) == identity
    (tmp_path / ".query.json.1234.tmp").write_bytes(b"of a crash")
    again = open_location(str(tmp_path))
    assert claim_identity(again, identity_of(graph(), "q-2")).query_id == "q-1", "the location's id stays"


def test_a_claim_from_which_nothing_came_is_taken_back(tmp_path: Path) -> None:
    store = open_location(str(tmp_path))
    claim_identity(store, identity_of(graph(), "q-1"))
    release_identity(store)
    assert claim_identity(store, identity_of(graph(), "q-2")).query_id == "q-2"
    store.create_if_absent("log/00000000000000000001.json", b"{}")
    release_identity(store)
    assert read_identity(store).query_id == "q-2", "a Generation was opened under it"


def test_a_spark_checkpoint_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"x"}')
    for name in ("offsets", "commits", "sources"):
        (tmp_path / name).mkdir()
    with pytest.raises(LocationError, match=r"Spark's own Structured Streaming.*empty folder"):
        open_location(str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["commits", "metadata", "offsets", "sources"], "untouched"


def test_somebody_elses_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.docx").write_text("x")
    with pytest.raises(LocationError, match=r"thesis\.docx"):
        open_location(str(tmp_path))
    with pytest.raises(LocationError, match="is a file"):
        open_location(str(tmp_path / "thesis.docx"))
    with pytest.raises(LocationError, match=r"thesis\.docx.*cannot be used"):
        open_location(str(tmp_path / "thesis.docx" / "inside"))


def test_other_schemes_and_nothing_are_refused() -> None:
    for scheme in ("gs", "abfs", "hdfs", "wasbs"):
        with pytest.raises(LocationError, match=rf"there is no store for {scheme}; give.*s3://bucket/prefix"):
            open_location(f"{scheme}://bucket/x")
    with pytest.raises(LocationError, match="empty"):
        open_location("")


def test_an_unwritable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(os, "open", refuse)  # root may write anywhere, so the refusal is played
    with pytest.raises(LocationError, match=r"cannot be used.*Permission denied.*writable folder"):
        open_location(str(tmp_path))


def test_the_identity_holds_ids_schemas_and_keys_and_nothing_else() -> None:
    identity = identity_of(graph(), "q")
    assert list(identity.operators) == [SOURCE, COUNT, SINK]
    assert identity.operators[COUNT]["states"] == {"counts": ["__key_group int16", "key int64", "count int64"]}
    assert identity.edges == {
        "0": {
            "id": 0,
            "producer": 0,
            "consumer": 1,
            "kind": "hash",
            "keys": ["key"],
            "schema": ["key int64", "value string"],
        },
    }


def test_names_and_user_code_may_change() -> None:
    old, new = graph(), graph(spec=CountSpec(name="Count (other body)"))
    assert differences(identity_of(old, "a"), identity_of(new, "b")) == []
    compare_identity(identity_of(old, "a"), identity_of(new, "b"))


def test_what_cannot_be_listed_is_not_taken_for_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "somebody's").touch()
    monkeypatch.setattr(os, "scandir", refuses)
    with pytest.raises(LocationError, match=r"cannot be used.*Permission denied"):
        open_location(str(tmp_path))


def test_another_kind_of_source_does_not_take_over() -> None:
    class Other(NoSource):
        pass

    old = graph()
    first, *rest = old.vertices
    assert first.source is not None
    new = replace(old, vertices=(replace(first, source=replace(first.source, source=Other())), *rest))
    before, after = identity_of(old, "q"), identity_of(new, "q")
    assert [tuple(line) for line in differences(before, after)] == [("source source-1", "NoSource", "Other")]
    unknown = {name: {k: v for k, v in entry.items() if k != "kind"} for name, entry in before.operators.items()}
    assert differences(msgspec.structs.replace(before, operators=unknown), after) == [], "stored by an older release"


def test_what_changed_is_listed() -> None:
    old = graph()
    states = {"counts": STATE.remove(2).append(pa.field("count", pa.float64())), "more": STATE}
    new = graph(spec=CountSpec(states=states))
    new = replace(new, max_parallelism=256)
    changed = differences(identity_of(old, "q"), identity_of(new, "q"))
    assert [line.what for line in changed] == ["state of count-1, counts", "state of count-1, more"]
    with pytest.raises(
        PlanChanged, match=r"count double.*\n.*more: stored absent.*\n.*maxParallelism: stored 128"
    ) as caught:
        compare_identity(identity_of(old, "q"), identity_of(new, "q"))
    assert "empty checkpointLocation" in str(caught.value)


def test_added_and_missing_operators_are_listed() -> None:
    changed = differences(identity_of(graph(), "q"), identity_of(graph(spec=CountSpec("count-2", "Sum")), "q"))
    assert changed == [("operator count-1", "Count", "absent"), ("operator count-2", "absent", "Sum")]


def test_another_parallelism_is_the_same_query() -> None:
    compare_identity(identity_of(graph(2), "q"), identity_of(graph(3), "q"))


def test_a_damaged_or_newer_identity_is_refused() -> None:
    store = MemoryStore()
    identity = identity_of(graph(), "q")
    claim_identity(store, identity)
    store.files["query.json"] = store.files["query.json"].replace(b"int64", b"int32", 1)
    with pytest.raises(CorruptSnapshot, match=r"query\.json"):
        claim_identity(store, identity)
    newer = MemoryStore()
    claim_identity(newer, msgspec.structs.replace(identity, format_version=9))
    with pytest.raises(LocationError, match="format version 9"):
        claim_identity(newer, identity)
