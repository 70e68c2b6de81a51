"""A checkpoint location names itself nowhere: it can be moved with ``mv``, and holds afterwards what it held before."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.ownership import request_change, request_snapshot
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.store.store import LocalStore
from tests.support.byte_scan import files_with
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.golden.golden_content import content, watermarks
from tests.support.golden.golden_query import expected, golden_graph, output, write_input


def test_a_location_that_was_moved_has_the_same_content_and_no_byte_names_where_it_was(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    outside, here, there = tmp_path / "outside", tmp_path / "before", tmp_path / "after" / "deeper"
    write_input(outside / "input")
    (outside / "slow").write_text("4000")
    (outside / "slower").write_text("7000")
    query = run(golden_graph(outside, 2), here, launcher)
    query.until(lambda view: view.committed_epoch >= 2, what="a first commit")
    launcher.jobs[-1].processes[0].kill()
    query.until_running(2)
    store = LocalStore(here)
    taken: list[str] = []
    asking = threading.Thread(
        target=lambda: taken.append(request_snapshot(store, rq.TakeSnapshot("asked for", "by a test")))
    )
    asking.start()
    while asking.is_alive():
        query.until(lambda view: True)
        asking.join(0.05)
    query.execution.request_snapshot("a label", note="a note")
    request_change(store, rq.DeleteSnapshots([int(taken[0].removeprefix("chk-"))]))
    query.execution.stop()
    for left in ("", ".answer", ".taken"):  # as somebody leaves it who asks and goes away
        store.create_if_absent(f"requests/{'0' * 32}{left}.json", b"{}")
    export_snapshot(str(here), "a label", tmp_path / "portable")
    convert_snapshot(tmp_path / "portable", tmp_path / "converted")
    for directory in (here, tmp_path / "portable", tmp_path / "converted"):
        for place in (here, tmp_path / "portable", tmp_path / "converted"):
            assert files_with(directory, str(place)) == []
    assert files_with(here, str(outside / "input")), "input is a position: that names where it is, and is not below it"
    assert not (outside / "output").is_relative_to(here)

    before = [content(here, parallelism) for parallelism in (1, 2, 3)], watermarks(here)
    assert before[0][0]["in flight"]
    there.parent.mkdir()
    here.rename(there)
    assert not here.exists()
    assert ([content(there, parallelism) for parallelism in (1, 2, 3)], watermarks(there)) == before
    assert not verify_location(str(there)).damage
    (outside / "slow").unlink()
    (outside / "slower").unlink()
    again = run(golden_graph(outside, 3), there, launcher)
    again.execution.process_all_available(60)
    again.execution.stop()
    assert output(outside / "output") == expected()
    assert not here.exists(), "nobody makes it again"


@pytest.mark.parametrize("how", ["plain", "escaped", "base64", "parquet", "arrow", "encoded"])
def test_the_scan_finds_what_it_looks_for(tmp_path: Path, how: str) -> None:
    """A text in every form in which a location could hold it."""
    text = "/where/it lies/é"
    rows = pa.table({"path": [text] * 200})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    forms = {
        "plain": f"x{text}y".encode(),
        "escaped": json.dumps({"a": [text]}).encode(),
        "base64": json.dumps({"a": base64.b64encode(text.encode()).decode()}).encode(),
        "arrow": bytes(sink.getvalue().to_pybytes()) * 2,
        "encoded": b"file:/where/it%20lies/%C3%A9/part-0",
    }
    if how == "parquet":
        pq.write_table(rows, tmp_path / "file", compression="zstd")
    else:
        (tmp_path / "file").write_bytes(forms[how])
    assert files_with(tmp_path, text) == ["file"]
    assert files_with(tmp_path, "/elsewhere") == []
