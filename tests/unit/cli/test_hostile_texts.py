"""Texts of snapshots, services, files and peers cannot control a terminal and cannot forge a log line."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import penstock
from penstock.cli.terminal import SafeConsole, say
from penstock.logs import get_logger
from penstock.network.handshake import Challenge, ClientHandshake, Hello, Identity, ServerHandshake, _encode
from penstock.network.secret import Secret, nonce
from penstock.plain_text import json_text, log_text, visible
from penstock.snapshots.log.entries import SnapshotLabelled
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from tests.support.cli.calling import query, snapshot
from tests.unit.cli.test_requests_cli import location  # noqa: F401 - the fixture

HOSTILE = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2028y\r\nz[bold]"
SOURCE = Path(penstock.__file__).parent


def assert_harmless(text: str) -> None:
    assert all(character.isprintable() or character in "\n" for character in text), ascii(text)


@pytest.mark.parametrize(
    "words",
    [["list"], ["list", "--json"], ["show", "2"], ["show", "2", "--json"], ["verify"], ["diff", "1", "2"], ["share"],
     ["sharing"], ["show", HOSTILE], ["delete", HOSTILE], ["label", "2", "--label", HOSTILE]],
)  # fmt: skip
def test_escapes_in_a_label_are_printed_as_text(location: Path, words: list[str]) -> None:  # noqa: F811
    log = SnapshotLog(LocalStore(location), lambda: "hostile")
    view = log.refresh()
    log.append(SnapshotLabelled(view.owner, 2, HOSTILE, HOSTILE))
    verb, *others = words
    code, out, err = snapshot(verb, str(location), *others)
    assert_harmless(out + err)
    if words == ["list"]:
        assert code == 0
        assert r"\x1b]0;owned" in out
    if words == ["list", "--json"]:
        assert HOSTILE in [one["label"] for one in json.loads(out)["snapshots"]]


def test_escapes_in_a_path_are_printed_as_text(tmp_path: Path) -> None:
    refused, wrong = snapshot("list", f"{tmp_path}/{HOSTILE}"), query("list", "--url", f"http://{HOSTILE}")
    assert (refused[0], wrong[0]) == (1, 2)
    for called in (refused, wrong):
        assert_harmless(called[1] + called[2])


def test_a_console_escapes_text_and_keeps_its_own_styles(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("column")
    table.add_row(escape(HOSTILE))
    console = SafeConsole(width=200)
    for printed in (escape(HOSTILE), Text(HOSTILE), table, HOSTILE.encode()):
        console.print(printed, soft_wrap=True)
    say(HOSTILE)
    say(HOSTILE, err=True)
    told = capsys.readouterr()
    assert_harmless(told.out + told.err)
    SafeConsole(force_terminal=True).print("[bold]ours[/]")
    assert capsys.readouterr().out.startswith("\x1b[1mours")


def test_the_command_line_prints_only_escaped_text() -> None:
    """Other ways to print would need an escape of their own."""
    others = []
    for path in sorted((SOURCE / "cli").rglob("*.py")):
        if path.name == "terminal.py" or "demo" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "print",
                "typer.echo",
                "Console",
                "click.echo",
            ):
                others.append(f"{path.relative_to(SOURCE)}: {ast.unparse(node)}")
    assert others == [
        "cli/main.py: typer.echo(f\"penstock {metadata.version('penstock')}\")",
        "cli/snapshot/app.py: typer.echo(json_text("
        "json.dumps(msgspec.to_builtins(document), indent=2, ensure_ascii=False)))",
    ]


def test_an_escaped_json_document_is_equal() -> None:
    document = {"label": HOSTILE, "more": "é\U0001f600\U000e0001"}
    text = json_text(json.dumps(document, ensure_ascii=False, indent=2))
    assert_harmless(text)
    assert json.loads(text) == document
    assert "é\U0001f600" in text


def test_an_argument_cannot_begin_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("penstock.test")
    log.warning("refused: %s, %d of %s", HOSTILE, 3, ValueError(HOSTILE))
    record = caplog.records[-1]
    first, *others = record.getMessage().splitlines()
    assert first.startswith("refused: x\\x1b]0;owned\\x07")
    assert all(line.startswith("  | ") for line in others)
    assert_harmless(record.getMessage())
    assert record.filename == Path(__file__).name, "the line is the caller's"
    assert log_text("tab\tand\nline") == "tab\tand\n  | line"
    assert visible("plain é") == "plain é"


def test_every_module_uses_the_escaping_logger() -> None:
    past = [
        str(path.relative_to(SOURCE))
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "logs.py" and "logging.getLogger(__name__)" in path.read_text()
    ]
    assert not past


def test_the_release_of_a_peer_is_logged_with_escapes(caplog: pytest.LogCaptureFixture) -> None:
    server = ServerHandshake(Secret.generate(), "data", 1, nonce())
    step = server.receive(_encode(Hello(HOSTILE, 1, "data", 0, nonce(), b"")))
    assert "cannot speak" in str(step.refused)
    assert_harmless(str(step.refused))
    client = ClientHandshake(Secret.generate(), Identity("data", 1, 0), nonce())
    client.receive(_encode(Challenge("v", nonce())))
    refused = client.receive(server._refuse(HOSTILE).send or b"").refused
    assert_harmless(str(refused))
    logging.getLogger("penstock.test").warning("%s", refused)
    assert_harmless(caplog.text)
