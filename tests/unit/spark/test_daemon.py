"""Work of Spark's Python daemon before it forks workers."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import penstock
from penstock.spark.daemon import forget_archives, import_all


def test_no_archive_is_read_again_for_a_task_and_its_modules_are_found_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "modules.zip"
    with ZipFile(archive, "w") as written:
        written.writestr("penstock_zipped/__init__.py", "")
        written.writestr("penstock_zipped/first.py", "")
        written.writestr("penstock_zipped/second.py", "NUMBER = 2")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("penstock_zipped.first")
    assert any(path.startswith(str(archive)) for path in sys.path_importer_cache)
    forget_archives()
    assert not any(path.startswith(str(archive)) for path in sys.path_importer_cache)
    assert importlib.import_module("penstock_zipped.second").NUMBER == 2


def test_workers_begin_with_the_modules_of_jobs_and_without_those_of_the_driver() -> None:
    daemon = [sys.executable, "-v", "-m", "penstock.spark.daemon"]
    # It ends when its input does.
    ended = subprocess.run(daemon, stdin=subprocess.DEVNULL, capture_output=True)
    imported = set(re.findall(r"^import '([\w.]+)' #", ended.stderr.decode(), re.MULTILINE))
    home = Path(penstock.__file__).parent
    for package in ("functions", "operators", "connectors"):
        files = [path.relative_to(home.parent).with_suffix("") for path in (home / package).rglob("*.py")]
        assert {".".join(path.parts) for path in files if not path.stem.startswith(("__init__", "plan"))} <= imported
    of_the_driver = (
        "penstock.catalyst",
        "penstock.planner",
        "penstock.api",
        "penstock.queries",
        "penstock.coordinator",
    )
    assert not [name for name in imported if name.startswith(of_the_driver)]


def test_a_module_that_cannot_be_imported_keeps_none_of_the_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "penstock_partly"
    package.mkdir()
    modules = {"__init__": "", "first": "import penstock_is_not_there", "second": "NUMBER = 2"}
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import_all(importlib.import_module("penstock_partly"))
    assert "penstock_partly.first" not in sys.modules
    assert sys.modules["penstock_partly.second"].NUMBER == 2
