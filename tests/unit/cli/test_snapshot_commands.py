"""The verbs as a user calls them: exit codes, one line for what went wrong, JSON that is JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.texts import age_text, size_text, watermark_text
from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US
from penstock.model.splits import Split
from penstock.snapshots.commands.opened_location import open_location_to_read
from tests.support.snapshots.location_kit import Kept, contents, flip


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "300")
    kept = Kept(tmp_path / "chk")
    kept.put({key: key for key in range(100)})
    kept.snapshot(watermark=1_600_000_000_000_000)
    kept.put({1: 0, 1000: 1}, removed=(2,))
    kept.snapshot("mine [x]", in_flight=5, splits=[Split("part-7", {}, {"rows": 3})])
    return kept


def call(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["snapshot", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_every_verb_speaks_to_people_and_to_programs_and_touches_nothing(kept: Kept) -> None:
    location, before = str(kept.location), contents(kept.location)
    for verb, arguments, texts in [
        ("list", [], ["chk-1", "mine [x]", "requested", "100 rows", "5 rows"]),
        ("show", ["mine [x]"], ["bottleneck:", "Count (count-1)", "part-7", "counts", "5 rows", "key-group skew"]),
        ("verify", [], ["2 snapshots", "all intact"]),
        ("diff", ["chk-1", "2", "--rows", "2"], ['{"key":1}', '{"count":1} -> {"count":0}', "2020-09-13 12:26:40"]),
    ]:
        code, out, err = call(verb, location, *arguments)
        assert (code, err) == (0, ""), verb
        assert not [text for text in texts if text not in out], f"{verb}: {out}"
        code, out, err = call(verb, location, *arguments, "--json")
        assert (code, err) == (0, ""), verb
        assert json.loads(out)["location"] == location
    assert contents(kept.location) == before


def test_without_a_terminal_no_table_is_wrapped(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = [
        ("show", ["mine [x]"], "subtask .*start delay +alignment +sync +async +in flight captured +state written"),
        ("show", ["mine [x]"], r"Count \(count-1\) \+ NoSink \(sink-1\) \[0\] .* ms +aligned "),
        ("diff", ["chk-1", "2"], r"Count \(count-1\) counts +\d+ +\d+ +\d+"),
    ]
    for verb, arguments, line in wide:
        _, out, _ = call(verb, str(kept.location), *arguments)
        assert re.search(rf"^ ?{line}", out, re.MULTILINE), out
        assert max(map(len, out.splitlines())) < 300, "and nothing is padded"
    (kept.location / next(path for path in contents(kept.location) if path.endswith(".arrows"))).unlink()
    _, out, _ = call("verify", str(kept.location))
    assert re.search(r"^ data/\S+\.arrows +.* +chk-1", out, re.MULTILINE), out


def test_a_snapshot_is_one_readable_line(kept: Kept) -> None:
    opened = open_location_to_read(str(kept.location))
    line = str(opened.metadata(opened.record("2")))
    assert re.fullmatch(
        r"snapshot chk-2 'mine \[x\]' of query \S+: generation 1, parallelism 1, 0 of 2 subtasks unaligned, "
        "5 rows in flight",
        line,
    ), line


def test_the_line_has_no_number_for_rows_that_subtasks_share_after_a_rescale(kept: Kept) -> None:
    opened = open_location_to_read(str(kept.location))
    metadata = opened.metadata(opened.record("2"))

    def line(**changes: object) -> str:
        for slot in metadata.slots:
            for subtask in slot.subtasks:
                subtask.inflight[:] = [msgspec.structs.replace(entry, **changes) for entry in subtask.inflight]
        return str(metadata)

    text = line(narrowed=True)
    assert text.endswith("0 of 2 subtasks unaligned, `penstock snapshot show` counts its rows in flight"), text
    assert line(rows=0).endswith("subtasks unaligned, 0 rows in flight")


def test_rows_are_counted_when_asked_for(kept: Kept) -> None:
    _, out, _ = call("show", str(kept.location), "2", "--rows", "--json")
    (table,) = [table for operator in json.loads(out)["operators"] for table in operator["tables"]]
    assert table["rows"] == 100
    assert table["skew"]["counted"]


def test_damage_is_reported_and_ends_with_1(kept: Kept) -> None:
    location = str(kept.location)
    flip(kept.location / "snapshots" / "chk-1" / "metadata.json")
    flip(kept.location / "data" / "1-2-0.arrows")
    code, out, _ = call("verify", location)
    assert code == 1
    assert "snapshots/chk-1/metadata.json" in out
    assert "data/1-2-0.arrows" in out
    assert "2 damaged" in out
    code, out, _ = call("verify", location, "--json")
    assert (code, len(json.loads(out)["damage"])) == (1, 2)
    code, out, err = call("list", location)
    assert code == 1
    assert "chk-2" in out, "the others are listed all the same"
    assert "chk-1 is damaged: snapshots/chk-1/metadata.json" in err


@pytest.mark.parametrize("verb", ["list", "show", "verify", "diff"])
def test_what_is_not_there_is_one_line_and_1(tmp_path: Path, verb: str) -> None:
    arguments = {"show": ["chk-1"], "diff": ["chk-1", "chk-2"]}.get(verb, [])
    code, out, err = call(verb, str(tmp_path / "nowhere"), *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("penstock: ")
    assert "there is no such folder" in err
    assert err.count("\n") == 1


def test_wrong_arguments_are_2(kept: Kept) -> None:
    assert call("show", str(kept.location))[0] == 2
    assert call("diff", str(kept.location), "chk-1")[0] == 2


def test_figures_are_short() -> None:
    assert [size_text(size) for size in (0, 1023, 1536, 5 << 30, 1 << 60)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "1048576.0 TiB",
    ]
    assert [age_text(seconds) for seconds in (3.2, 600, 7200, 864_000)] == ["3 s", "10 min", "2 h", "10 d"]
    times = (None, 0, START_OF_TIME_US, END_OF_TIME_US, END_OF_TIME_US - 1)
    assert [watermark_text(time) for time in times] == [
        "none yet",
        "1970-01-01 00:00:00",
        "start of time",
        "end of time",
        f"{END_OF_TIME_US - 1} us",
    ]
