"""What Spark's Python daemon has done before it forks workers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from penstock.spark.daemon import forget_archives


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
