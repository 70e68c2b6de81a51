"""Penstock as a zip, and what a worker says that cannot run it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import cloudpickle
import pyarrow
import pytest

from penstock.spark.shipping import package_zip
from penstock.spark.slot_task import REQUIRED, worker_check
from penstock.version import __version__

SITE = Path(pyarrow.__file__).parent.parent


def elsewhere(program: str, *arguments: str, path: str = "") -> str:
    """Return the output of a Python that has the dependencies and no Penstock; ``path`` goes in front."""
    bare = f"import sys; sys.path[:0] = {[path] if path else []!r}; sys.path.append({str(SITE)!r})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", bare + program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_zip(tmp_path_factory.mktemp("zip"))


def test_a_slot_runs_from_the_zip_alone(zipped: Path) -> None:
    told = elsewhere("import penstock.worker.slot as s; print(s.__file__, s.Slot.__name__)", path=str(zipped))
    assert told.startswith(f"{zipped}/penstock/worker/slot.py")  # the compiled module, with .pyc at its end


def test_the_zip_has_sources_compiled_modules_and_pages(zipped: Path) -> None:
    names = zipfile.ZipFile(zipped).namelist()
    for name in ("penstock/version.py", "penstock/version.pyc", "penstock/py.typed"):
        assert name in names
    assert not [name for name in names if "__pycache__" in name or not name.startswith("penstock/")]


def test_the_same_package_makes_the_same_name(zipped: Path, tmp_path: Path) -> None:
    assert package_zip(tmp_path).name == zipped.name
    assert zipped.name.startswith(f"penstock-{__version__}-")


def check_elsewhere(tmp_path: Path, required: tuple[str, ...], version: str, path: str) -> str:
    pickled = tmp_path / "check"
    pickled.write_bytes(cloudpickle.dumps(worker_check(required, version)))
    return elsewhere("import pickle; print(pickle.load(open(sys.argv[1], 'rb'))())", str(pickled), path=path)


def test_a_worker_names_what_it_lacks(tmp_path: Path) -> None:
    """The check itself is unpickled where there is no Penstock."""
    told = check_elsewhere(tmp_path, (*REQUIRED, "no_such_module"), __version__, "")
    assert f"{sys.executable} on " in told
    assert "has no penstock, no_such_module: install what Penstock needs" in told


def test_a_worker_with_another_release_names_both(zipped: Path, tmp_path: Path) -> None:
    told = check_elsewhere(tmp_path, REQUIRED, "9.9.9", str(zipped))
    assert f"runs Penstock {__version__} from {zipped}/penstock, the driver 9.9.9" in told
    assert check_elsewhere(tmp_path, REQUIRED, __version__, str(zipped)) == ""
