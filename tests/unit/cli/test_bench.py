"""``penstock bench``: another process does it, with its exit code, and Ctrl-C ends both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import bench
from penstock.cli.main import app
from penstock.errors import ResourceError
from tests.support.places import ROOT

CHECKOUT = ROOT

TELLS = """
import pathlib, sys
import penstock
pathlib.Path("told").write_text(repr((sys.argv[1:], str(pathlib.Path.cwd()), penstock.__file__)))
sys.exit(7)
"""

WAITS = """
import pathlib, time
try:
    pathlib.Path("ready").write_text("")
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path("interrupted").write_text("")
    {then}
"""

CALLER = (
    "import sys; from pathlib import Path; from penstock.cli.bench import run; sys.exit(run([], Path(sys.argv[1])))"
)


def checkout(folder: Path, program: str) -> Path:
    """A repository whose benchmarks are this program, and whose package says only where it is."""
    files = {"benchmarks/__init__.py": "", "benchmarks/__main__.py": program, "src/penstock/__init__.py": ""}
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_arguments_folder_package_and_exit_code_are_handed_on(tmp_path: Path) -> None:
    folder = checkout(tmp_path, TELLS)
    assert bench.run(["nexmark", "--quick"], folder) == 7
    package = str(folder / "src/penstock/__init__.py")
    assert (folder / "told").read_text() == repr((["nexmark", "--quick"], str(folder), package))


def test_without_a_checkout_it_says_where_the_benchmarks_are(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="in Penstock's repository and not in the installed package; clone it"):
        bench.run([], tmp_path)


@pytest.mark.parametrize(
    ("words", "handed_on"),
    [
        ([], []),
        (["--list"], ["--list"]),
        (["nexmark", "flip76"], ["nexmark", "flip76"]),
        (["nexmark", "--quick"], ["nexmark", "--quick"]),
        (["--page"], ["--page"]),
    ],
)
def test_the_command_hands_its_words_on(
    words: list[str], handed_on: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("penstock.cli.main.run_benchmarks", lambda arguments: seen.append(arguments) or 3)
    assert CliRunner().invoke(app, ["bench", *words]).exit_code == 3
    assert seen == [handed_on]


def test_the_command_refuses_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(arguments: list[str]) -> int:
        raise ResourceError("there are no benchmarks")

    monkeypatch.setattr("penstock.cli.main.run_benchmarks", refuse)
    result = CliRunner().invoke(app, ["bench"])
    assert (result.exit_code, result.stderr) == (1, "penstock: there are no benchmarks\n")


def caller(folder: Path) -> subprocess.Popen[bytes]:
    """A process that waits for the benchmarks of this checkout, which are running."""
    source = str(Path(penstock.__file__).parent.parent)
    process = subprocess.Popen([sys.executable, "-c", CALLER, str(folder)], env={**os.environ, "PYTHONPATH": source})
    appears(folder / "ready")
    return process


def appears(file: Path) -> None:
    until = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < until, f"{file.name} did not appear"
        time.sleep(0.01)


def test_ctrl_c_reaches_the_benchmarks_once_and_waits_until_they_have_tidied_up(tmp_path: Path) -> None:
    tidy = 'time.sleep(0.5); pathlib.Path("tidied").write_text("")'
    process = caller(checkout(tmp_path, WAITS.format(then=tidy)))
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert (tmp_path / "tidied").exists()


def test_a_second_ctrl_c_ends_benchmarks_that_do_not_end(tmp_path: Path) -> None:
    process = caller(checkout(tmp_path, WAITS.format(then="time.sleep(60)")))
    process.send_signal(signal.SIGINT)
    appears(tmp_path / "interrupted")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130


def test_the_repositorys_own_benchmarks_are_found_listed_and_named_where_one_is_not_there(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert bench.run(["--list"], CHECKOUT) == 0
    listed = capfd.readouterr().out.splitlines()
    assert {"nexmark", "flip76", "stateful_python"} <= set(listed)
    assert bench.run(["moon"], CHECKOUT) == 2
    assert "unknown: moon" in capfd.readouterr().err
